"""``cutwater conf``: the Spark settings that a session needs, to be put into spark-defaults.conf."""

from cutwater.cli.answer import answer


def conf(*, as_json: bool) -> None:
    from cutwater.spark.settings import RECOMMENDED, REQUIRED

    def tell() -> None:
        width = max(map(len, {**REQUIRED, **RECOMMENDED}))
        print("# needed: without these a job does not start, hangs, or is not exactly once")
        for key, value in REQUIRED.items():
            print(f"{key:<{width}}  {value}")
        print("\n# advised: these bound the bytes in flight, and how late a frozen executor is seen")
        for key, value in RECOMMENDED.items():
            print(f"{key:<{width}}  {value}")

    answer({"required": REQUIRED, "recommended": RECOMMENDED}, tell, as_json=as_json)
