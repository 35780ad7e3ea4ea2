// An executor: each task is a group of processes of this machine. One for a batch system calls that
// system's commands (as qsub, qstat and qdel) or its API in the same four places. It starts programs,
// so its list of plugins says `"processes": true`.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { availableParallelism, totalmem } from "node:os";
import { promisify } from "node:util";
import { definePlugin } from "heddle/plugin-kit";

/** It waits for the job, also after SIGTERM, and shows the job's name in `ps`. */
const SHELL = 'trap : TERM; sh -c "$JOB_SCRIPT"; exit $?';
const MAX_BYTES = 2 ** 26;

/** The process group of each job by its name: what runs is known after a restart too. */
async function groups() {
  const options = { maxBuffer: MAX_BYTES };
  const { stdout } = await promisify(execFile)("ps", ["-wweo", "pgid=,args="], options);
  const lines = stdout.split("\n").map((line) => line.trim().split(` sh -c ${SHELL} `));
  return new Map(lines.flatMap(([group, name]) => (name ? [[name, Number(group)]] : [])));
}

export default definePlugin({
  name: "local-jobs",
  version: "1.0.0",
  apiVersion: 1,
  capabilities: ["executors"],
  setup({ executors }) {
    executors.add({
      name: "groups",
      offer: () => ({ cpus: availableParallelism(), memoryBytes: totalmem() }),
      async submit({ name, script }) {
        const env = { ...process.env, JOB_SCRIPT: script };
        const child = spawn("sh", ["-c", SHELL, name], { detached: true, stdio: "ignore", env });
        child.unref();
        await once(child, "spawn");
      },
      async list(prefix) {
        const names = [...(await groups()).keys()].filter((name) => name.startsWith(prefix));
        return names.map((name) => ({ name, state: "running" }));
      },
      async cancel(name) {
        const group = (await groups()).get(name);
        if (group !== undefined) process.kill(-group, "SIGTERM");
      },
    });
  },
});
