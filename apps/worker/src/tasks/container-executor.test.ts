import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { TestLeader, taskId, until } from "../../test/test-leader.ts";

const image = "localhost/heddle-test:latest";
vi.setConfig({ testTimeout: 120_000 });

/** Makes an image of a static busybox and runs it once; tells why that cannot be done here. */
function prepareImage(): string {
  const busybox = ["/bin/busybox", "/usr/bin/busybox"].find((path) => existsSync(path));
  if (!busybox) return "there is no busybox to make an image of";
  const folder = mkdtempSync(join(tmpdir(), "heddle-image-"));
  try {
    mkdirSync(join(folder, "root/bin"), { recursive: true });
    copyFileSync(busybox, join(folder, "root/bin/busybox"));
    for (const name of ["sh", "sleep", "tail"])
      symlinkSync("busybox", join(folder, "root/bin", name));
    execFileSync("tar", ["-C", join(folder, "root"), "-cf", join(folder, "image.tar"), "."]);
    const quiet = { stdio: "pipe" as const, timeout: 60_000 };
    execFileSync("podman", ["import", join(folder, "image.tar"), image], quiet);
    const limits = ["--network", "host", "--memory", "64m", "--pids-limit", "64"];
    execFileSync("podman", ["run", "--rm", ...limits, image, "/bin/sh", "-c", "exit 0"], quiet);
    return "";
  } catch (error) {
    return `podman runs no container here: ${String(error).slice(0, 300)}`;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const why = prepareImage();
if (why) console.log(`containers are not tested: ${why}`);

let leader: TestLeader;

beforeEach(async () => {
  leader = new TestLeader();
  await leader.listen();
});

afterEach(() => leader.close());

const spec = { executor: "container", containerImage: image, memoryBytes: 64e6, cpuMilli: 500 };
const sh = (line: string) => ({ ...spec, command: ["/bin/sh", "-c", line] });

test.skipIf(why !== "")(
  "a container has its environment, mounts and limits; code and log come back",
  async () => {
    await leader.startWorker();
    const session = leader.open();
    const line =
      'echo "$GREETING from rank $RANK"; echo kept > $HEDDLE_CHECKPOINT_DIR/c1; echo oh >&2; exit 7';
    await session.start({ ...sh(line), environment: { GREETING: "two\nlines" } });
    const { exit } = await session.reaches("exited", taskId(), 60_000);
    expect(exit).toMatchObject({ exitCode: 7, reason: "ExitCode" });
    await until("the log came", () => leader.isComplete());
    expect(leader.log()).toBe("two\nlines from rank 0\n");
    expect(leader.log(0, "stderr")).toBe("oh\n");
    expect(existsSync(join(leader.folder, "worker/checkpoints/job_A/c1"))).toBe(true);
  },
);

test.skipIf(why !== "")(
  "stopping ends a container that ignores SIGTERM, and nothing of it is left",
  async () => {
    await leader.startWorker();
    const session = leader.open();
    await session.start(sh("trap '' TERM; echo up; while :; do sleep 1; done"));
    await until("it is up", () => leader.log() === "up\n", 60_000);
    session.send({ stop: { task: taskId(), checkpoint: false, graceMs: 300, why: "cancelled" } });
    const { exit } = await session.reaches("exited", taskId(), 60_000);
    expect(exit).toMatchObject({ signal: "SIGKILL", asked: true });
    const left = execFileSync("podman", ["ps", "--all", "--format", "{{.Names}}"]).toString();
    expect(left).not.toContain("job_A");
  },
);

test.skipIf(why !== "")(
  "an image that cannot be pulled is an ImagePull; memory beyond the bound an OutOfMemory",
  async () => {
    await leader.startWorker();
    const session = leader.open();
    await session.lease({ ...spec, containerImage: "localhost:1/no-such:latest", command: [] });
    session.send({ start: { task: taskId(), peers: [] } });
    const { exit } = await session.reaches("exited", taskId(), 60_000);
    expect(exit).toMatchObject({ reason: "ImagePull" });
    expect(exit?.message).toContain("localhost:1/no-such:latest");
    await session.start(sh("exec tail /dev/zero"), taskId(1));
    const greedy = await session.reaches("exited", taskId(1), 60_000);
    expect(greedy.exit?.reason).toBe("OutOfMemory");
  },
);

test.skipIf(why !== "")("a container outlives kill -9 of its worker and is adopted", async () => {
  const worker = await leader.startWorker();
  const first = leader.open();
  const line = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; sleep 0.2; done; exit 5";
  await first.start(sh(line));
  await until("lines come", () => leader.log() !== "", 60_000);
  worker.kill("SIGKILL");
  await until("the worker is gone", () => worker.signalCode !== null);
  await leader.startWorker();
  const { exit } = await leader.open().reaches("exited", taskId(), 60_000);
  expect(exit).toMatchObject({ exitCode: 5 });
  await until("the whole log came", () => leader.isComplete());
  expect(leader.log()).toBe(Array.from({ length: 40 }, (_, i) => `line ${i + 1}\n`).join(""));
});
