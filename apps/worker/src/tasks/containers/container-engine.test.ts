// holds: task-container-engine

import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isProcessAlive } from "@heddle/base/process-alive";
import { until } from "@heddle/base/testing/until";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ContainerCli } from "./container-cli.ts";
import { findContainerEngine, ownLimits } from "./container-engine.ts";

let folder = "";
const logged: unknown[] = [];
const log = {
  warn: () => {},
  info: (fields: unknown) => logged.push(fields),
  error: () => {},
};

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-engines-"));
  logged.length = 0;
  vi.stubEnv("PATH", folder);
});

afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true });
});

function install(name: string, ...lines: string[]): void {
  writeFileSync(join(folder, name), `#!/bin/sh\n${lines.join("\n")}\n`);
  chmodSync(join(folder, name), 0o755);
}

test("engine: a machine without a container CLI has none, and logs nothing", async () => {
  expect(await findContainerEngine(log)).toBeUndefined();
  expect(logged).toEqual([]);
});

test("engine: one that cannot make a container is not used, and its error is logged", async () => {
  install("podman", "echo 'Error: OCI runtime error: no cgroups here' >&2; exit 126");
  install("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1");
  expect(await findContainerEngine(log)).toBeUndefined();
  expect(logged).toMatchObject([
    { name: "podman", error: "OCI runtime error: no cgroups here" },
    { name: "docker", error: "Cannot connect to the Docker daemon" },
  ]);
});

test("engine: the first that works is used; an old podman works through a client", async () => {
  install("docker", "exit 0");
  install("nerdctl", "exit 0");
  expect(await findContainerEngine(log)).toMatchObject({
    cli: { name: "docker" },
    writesItself: false,
  });
  install("podman", '[ "$1" = info ] || exit 125');
  expect(await findContainerEngine(log)).toMatchObject({
    cli: { name: "podman" },
    writesItself: false,
  });
  const missing = "echo 'Error: exec: \"/no-program\": no such file' >&2; exit 127";
  install("podman", missing);
  const found = await findContainerEngine(log);
  expect(found?.networkFault).toBeUndefined();
  expect(found).toMatchObject({
    cli: { name: "podman" },
    writesItself: true,
  });
  expect(logged).toEqual([]);
});

test("engine: a podman without a helper for networks runs containers without one", async () => {
  const missing = "echo 'Error: exec: \"/no-program\": no such file' >&2; exit 127";
  const fault = "netavark: No such file or directory (os error 2)";
  install(
    "podman",
    `case "$*" in *network*none*) ${missing};; esac; echo '${fault}' >&2; exit 127`,
  );
  expect(await findContainerEngine(log)).toMatchObject({
    cli: { name: "podman" },
    writesItself: true,
    networkFault: fault,
  });
  install("podman", `echo '${fault}' >&2; exit 127`);
  expect(await findContainerEngine(log)).toBeUndefined();
  expect(logged).toMatchObject([{ name: "podman", error: fault }]);
});

test("limits: a container has at most its worker's bounds on files and processes", () => {
  const limits = ownLimits();
  expect(limits.filter((each) => each === "--ulimit").length * 2).toBe(limits.length);
  for (const limit of limits.filter((each) => each !== "--ulimit")) {
    expect(limit).toMatch(/^(nofile|nproc)=(\d+):\2$/);
  }
});

test("CLI: a late call is killed with its children, and reports the timeout", async () => {
  const shell = new ContainerCli("/bin/sh");
  const pids = join(folder, "pids");
  const line = `/bin/sleep 600 & echo $! $$ > ${pids}; wait`;
  await expect(shell.run(["-c", line], { timeoutMs: 8_000 })).rejects.toThrow(
    "`/bin/sh -c` did not answer within 8 s",
  );
  const started = readFileSync(pids, "utf8").trim().split(" ").map(Number);
  expect(started).toHaveLength(2);
  await until("both are gone", () => !started.some(isProcessAlive));
});

test("CLI: a call returns its output, or its last line on failure; it can be aborted", async () => {
  const shell = new ContainerCli("/bin/sh");
  const options = { timeoutMs: 60_000 };
  expect(await shell.run(["-c", "echo ' out '; echo noise >&2"], options)).toBe("out");
  // Its background process may hold its output forever.
  expect(await shell.run(["-c", "/bin/sleep 5 & echo out"], options)).toBe("out");
  const failed = shell.run(["-c", "echo one >&2; echo Error: two >&2; exit 3"], options);
  await expect(failed).rejects.toMatchObject({ message: "two", code: 3 });
  await expect(shell.run(["-c", "exit 3"], options)).rejects.toThrow("ended with code 3");
  await expect(new ContainerCli("/no/cli").run([], options)).rejects.toThrow("ENOENT");
  const signal = AbortSignal.abort();
  await expect(shell.run(["-c", "exit"], { ...options, signal })).rejects.toThrow("was cancelled");
});
