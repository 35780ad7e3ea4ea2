import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isProcessAlive } from "@heddle/base/process-alive";
import { until } from "@heddle/base/testing/until";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ContainerCli } from "./container-cli.ts";
import { findContainerEngine, ownLimits } from "./container-engine.ts";

let folder = "";
const told: unknown[] = [];
const log = {
  warn: () => {},
  info: (fields: unknown) => told.push(fields),
  error: () => {},
};

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-engines-"));
  told.length = 0;
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

test("a machine without a container CLI has no engine, and says nothing of it", async () => {
  expect(await findContainerEngine(log)).toBeUndefined();
  expect(told).toEqual([]);
});

test("an engine that can make no container is none, and its words are logged", async () => {
  install("podman", "echo 'Error: OCI runtime error: no cgroups here' >&2; exit 126");
  install("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1");
  expect(await findContainerEngine(log)).toBeUndefined();
  expect(told).toMatchObject([
    { name: "podman", error: "OCI runtime error: no cgroups here" },
    { name: "docker", error: "Cannot connect to the Docker daemon" },
  ]);
});

test("the first engine that works is taken; a podman that lacks what the probe needs works by a client", async () => {
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
  install("podman", '[ "$1" = run ] && exit 127');
  expect(await findContainerEngine(log)).toMatchObject({
    cli: { name: "podman" },
    writesItself: true,
  });
  expect(told).toEqual([]);
});

test("a container is given no more files and processes than its worker may have", () => {
  const limits = ownLimits();
  expect(limits.filter((each) => each === "--ulimit").length * 2).toBe(limits.length);
  for (const limit of limits.filter((each) => each !== "--ulimit")) {
    expect(limit).toMatch(/^(nofile|nproc)=(\d+):\2$/);
  }
});

test("a call that is late is killed with all that it started, and says how long it was waited for", async () => {
  const shell = new ContainerCli("/bin/sh");
  const pids = join(folder, "pids");
  const line = `/bin/sleep 600 & echo $! $$ > ${pids}; wait`;
  await expect(shell.run(["-c", line], { timeoutMs: 2_000 })).rejects.toThrow(
    "`/bin/sh -c` did not answer within 2 s",
  );
  const started = readFileSync(pids, "utf8").trim().split(" ").map(Number);
  expect(started).toHaveLength(2);
  await until("both are gone", () => !started.some(isProcessAlive));
});

test("a call tells what was printed, its last words where it fails, and is called off", async () => {
  const shell = new ContainerCli("/bin/sh");
  const options = { timeoutMs: 60_000 };
  expect(await shell.run(["-c", "echo ' out '; echo noise >&2"], options)).toBe("out");
  // What it leaves behind may hold its output for ever.
  expect(await shell.run(["-c", "/bin/sleep 5 & echo out"], options)).toBe("out");
  const failed = shell.run(["-c", "echo one >&2; echo Error: two >&2; exit 3"], options);
  await expect(failed).rejects.toMatchObject({ message: "two", code: 3 });
  await expect(shell.run(["-c", "exit 3"], options)).rejects.toThrow("ended with code 3");
  await expect(new ContainerCli("/no/cli").run([], options)).rejects.toThrow("ENOENT");
  const signal = AbortSignal.abort();
  await expect(shell.run(["-c", "exit"], { ...options, signal })).rejects.toThrow("called off");
});
