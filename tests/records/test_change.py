"""Record sets merged, pruned, compressed, exported and shown."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from layoutlab.cli import main
from layoutlab.errors import StoreError, UsageError
from layoutlab.records.change import merged, pruned
from layoutlab.records.files import Dropped, read_set, write_set
from layoutlab.store import Store

from .conftest import TINY_CONV, unpack, with_failures


def test_pruning_keeps_the_best_and_counts_the_rest(tiny_conv):
    tried = with_failures(tiny_conv, 4, 5)  # the only trial of workload 4, and one of workload 3
    best = pruned(tried)
    assert [record.workload for record in best.records] == [0, 1, 2, 3]
    assert best.records[3].seconds == min(record.seconds for record in tried.records if record.workload == 3)
    assert best.dropped == (Dropped(workload=3, trials=3, failed=1), Dropped(workload=4, trials=1, failed=1))
    assert (best.trials, best.failed) == (tried.trials, tried.failed) == (8, 2)
    assert pruned(best) == best


def test_merging_takes_each_workload_and_each_record_once(tiny_conv):
    first = replace(tiny_conv, records=tiny_conv.records[:4])
    # The second has the workloads in another order.
    turned = replace(
        tiny_conv,
        workloads=tiny_conv.workloads[::-1],
        records=tuple(replace(record, workload=4 - record.workload) for record in tiny_conv.records[2:]),
    )
    together = merged({Path("a"): first, Path("b"): turned})
    assert together == tiny_conv
    assert merged({Path("a"): together, Path("b"): first, Path("c"): turned}) == tiny_conv


def test_merging_sums_what_was_dropped_but_not_twice_of_the_same(tiny_conv):
    one, other = pruned(tiny_conv), pruned(with_failures(tiny_conv, 5))
    assert merged({Path("a"): one, Path("b"): one}) == one
    together = merged({Path("a"): one, Path("b"): other})
    assert together.dropped == (Dropped(workload=3, trials=6, failed=1),)
    assert len(together.records) == 5


def test_merging_what_does_not_belong_together_is_refused(tiny_conv):
    identity = replace(tiny_conv.identity, device="another CPU", target={**tiny_conv.identity.target, "mcpu": "znver4"})
    with pytest.raises(UsageError) as caught:
        merged({Path("a"): tiny_conv, Path("b"): replace(tiny_conv, identity=identity)})
    assert str(caught.value) == (
        "a and b do not belong together, so their times cannot be compared:\n"
        f"  device: {tiny_conv.identity.device} in a, another CPU in b\n"
        "  target.mcpu: rocketlake in a, znver4 in b\n"
        "Merge records of one thing only; a run may use the others for what it has no record of: --borrow"
    )


def test_a_written_set_reads_back_and_is_the_same_bytes_each_time(tiny_conv, tmp_path):
    best = pruned(tiny_conv)
    for name in ("one", "two"):
        write_set(tmp_path / name, best)
    assert read_set(tmp_path / "one") == best
    files = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()}
    assert sorted(files) == ["about.json", "records.jsonl.gz", "spent.json", "workloads.jsonl.gz"]
    assert gzip.decompress(files["records.jsonl.gz"]) == best.contents()["records.jsonl"]
    with pytest.raises(UsageError) as caught:
        write_set(tmp_path / "one", best)
    assert str(caught.value) == f"{tmp_path / 'one'} is there already: remove it first, or name another folder"


def test_a_compressed_file_that_is_cut_is_named(tmp_path, tiny_conv):
    write_set(tmp_path / "set", tiny_conv)
    path = tmp_path / "set" / "records.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UsageError, match=rf"^{path} cannot be read \(.*\): get the set again$"):
        read_set(tmp_path / "set")


def test_show(capsys, monkeypatch):
    monkeypatch.chdir(TINY_CONV.parent)
    assert main(["records", "show", "tiny_conv"]) == 0
    assert capsys.readouterr().out == (
        "tiny_conv:\n"
        "  device    Intel(R) Xeon(R) Processor\n"
        "  target    llvm -mcpu=rocketlake -mattr=-prefer-256-bit -num-cores=1\n"
        "  versions  apache-tvm 0.27.0.post1, apache-tvm-ffi 0.1.14.post0\n"
        "  model     sha256 92e55c458c092b3bceb8aa2e02dfe3faaefd74c1a4f869d6c952d30268994d09\n"
        "  layouts   hook keep\n"
        "  weights   packed\n"
        "  tuning    search evolutionary, cost_model xgb, batch 4, population 8, seed 1, cold_cache False, repeats 3, "
        "min_repeat_ms 15\n"
        "  records   5 workloads, 8 trials\n"
    )


def test_prune_and_merge_on_the_command_line(tiny_conv, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    unpack(tiny_conv, Path("plain"))
    write_set(Path("packed"), tiny_conv)
    for name in ("plain", "packed"):
        assert main(["records", "prune", name]) == 0
        assert capsys.readouterr().out == f"{name}: 5 workloads, 8 trials, 5 of them kept as records\n"
        assert read_set(Path(name)) == pruned(tiny_conv)
    assert sorted(path.name for path in Path("plain").iterdir()) == [
        "about.json",
        "records.jsonl",
        "spent.json",
        "workloads.jsonl",
    ]
    assert main(["records", "merge", "both", "plain", "packed"]) == 0
    assert capsys.readouterr().out == "both: 5 workloads, 8 trials, 5 of them kept as records\n"
    assert main(["records", "show", "nothing"]) == 2
    assert capsys.readouterr().err == (
        "error: nothing is no record set: it has no about.json, which says what records belong to. "
        "layoutlab records export makes such a set of a run's records\n"
    )


def test_pruning_says_what_was_damaged(tiny_conv, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    records = unpack(tiny_conv, Path("plain")) / "records.jsonl"
    records.write_bytes(records.read_bytes() + b"[0,")
    assert main(["records", "prune", "plain"]) == 0
    assert capsys.readouterr() == (
        "plain: 5 workloads, 8 trials, 5 of them kept as records\n",
        "plain: the last record was torn (3 bytes) and was dropped; 8 trials are left\n",
    )


SPEC = "name: x\nmodel: {file: model.tflite}\ndevice: host\nvariants: [{name: nhwc, alter_op_layout: keep}]\n"


@pytest.fixture
def run_folder(tiny_conv, tmp_path, monkeypatch) -> Path:
    """What a run leaves behind, as far as records go."""
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(SPEC)
    runs = Path("results/runs/x")
    with Store(runs) as store:
        store.append("run", spec={})
        store.append("uses", variant="nhwc", folder="nhwc-aaa")
        store.append("uses", variant="untuned", folder="untuned-bbb")
    unpack(tiny_conv, runs / "nhwc-aaa")
    return runs


def test_export(run_folder, tiny_conv, capsys):
    assert main(["records", "export", "x.yaml", "all"]) == 0
    assert main(["records", "export", "x.yaml", "best", "--variant", "nhwc", "--best"]) == 0
    assert capsys.readouterr().out == (
        "all/nhwc: 5 workloads, 8 trials\nbest/nhwc: 5 workloads, 8 trials, 5 of them kept as records\n"
    )
    assert read_set(Path("all/nhwc")) == tiny_conv
    assert read_set(Path("best/nhwc")) == pruned(tiny_conv)
    assert sorted(path.name for path in Path("all").iterdir()) == ["nhwc"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--variant", "nwhc"], 'the last run in results/runs/x has no variant "nwhc": did you mean "nhwc"?'),
        (["--variant", "untuned"], 'variant "untuned" in results/runs/x has no tuning records'),
        (["--results", "other"], "other/runs/x holds no run of x.yaml: run the spec first"),
    ],
)
def test_export_of_what_is_not_there(run_folder, arguments, message, capsys):
    assert main(["records", "export", "x.yaml", "all", *arguments]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"
    assert not Path("all").exists()


def test_records_of_a_run_that_goes_on_are_left_alone(run_folder, capsys):
    folder = str(run_folder / "nhwc-aaa")
    before = (run_folder / "nhwc-aaa" / "records.jsonl").read_bytes()
    with Store(run_folder):
        for command in (["prune", folder], ["merge", "out", folder], ["export", "x.yaml", "out"]):
            assert main(["records", *command]) == StoreError.exit_code
            assert "another run is using" in capsys.readouterr().err
        assert main(["records", "show", folder]) == 0
    assert (run_folder / "nhwc-aaa" / "records.jsonl").read_bytes() == before
    assert not Path("out").exists()
