"""Tuning records as files, without TVM.

A record set is a folder with

    about.json         what the records belong to (`identity`)
    workloads.jsonl    one workload a line, as MetaSchedule writes it: [hash, module in base64]
    records.jsonl      one trial a line: [number of its workload's line, [trace, [seconds], target, arguments]]
    spent.json         trials that are counted but not kept (`files.Dropped`); absent where there are none

The two .jsonl files may be compressed (.jsonl.gz). The folder of a run's variant is such a set among other files.
"""
