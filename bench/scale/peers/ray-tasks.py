"""Short tasks through Ray. Prints as JSON, by task, when it was submitted and when it began."""

import json
import sys
import time

import ray


def main():
    jobs, rate = int(sys.argv[1]), float(sys.argv[2])
    ray.init(include_dashboard=False, log_to_driver=False)

    @ray.remote(num_cpus=0.02)
    def begin():
        return time.time()

    # Its processes have started.
    ray.get([begin.remote() for _ in range(100)])
    sent, tasks = [], []
    started = time.time()
    for at in range(jobs):
        if rate > 0:
            time.sleep(max(0.0, started + at / rate - time.time()))
        sent.append(time.time())
        tasks.append(begin.remote())
    print(json.dumps(list(zip(sent, ray.get(tasks)))))
    ray.shutdown()


main()
