"""The engine on TVM's Relax and MetaSchedule. Everything in here imports TVM: worker processes only."""
