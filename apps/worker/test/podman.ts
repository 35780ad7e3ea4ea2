import { execFileSync, spawnSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const image = "localhost/heddle-busybox:2";
const tools = ["sh", "sleep", "tail", "cat", "ls", "pwd", "kill", "echo", "nc"];
const limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"];
const quiet = { stdio: "pipe", timeout: 60_000 } as const;

/**
 * Makes an image of a static busybox and runs it; returns why that is impossible here. Where podman
 * works only with another runtime than its default, its settings name that one for all children of
 * this process.
 */
export function preparePodman(): string {
  const busybox = ["/bin/busybox", "/usr/bin/busybox"].find((path) => existsSync(path));
  if (!busybox) return "there is no busybox to make an image of";
  try {
    importImage(busybox);
  } catch (error) {
    return `podman takes no image here: ${String(error).slice(0, 300)}`;
  }
  const own = tryRun([]);
  if (own === "") return "";
  if (tryRun(["--runtime", "runc"]) !== "") return `podman runs no container here: ${own}`;
  const settings = join(mkdtempSync(join(tmpdir(), "heddle-podman-")), "containers.conf");
  writeFileSync(settings, '[engine]\nruntime = "runc"\n');
  process.env["CONTAINERS_CONF"] = settings;
  console.log(`containers run by runc: podman's own choice does not work here (${own})`);
  return "";
}

/** Why podman gives containers no network of their own here; empty if it does. */
export function podmanNetworkFault(): string {
  return tryRun([], []);
}

/**
 * Removes the containers of an ended worker, as after a kill during a call of the engine: no other
 * worker of that id follows.
 */
export function removePodmanContainers(nodeId: string): void {
  const own = ["--filter", `label=heddle.node=${nodeId}`, "--format", "{{.Names}}"];
  const names = execFileSync("podman", ["ps", "--all", ...own], quiet)
    .toString()
    .split("\n");
  const left = names.filter((name) => name !== "");
  if (left.length === 0) return;
  console.log(`a worker has left containers, which are removed: ${left.join(", ")}`);
  execFileSync("podman", ["rm", "--force", "--ignore", ...left], quiet);
}

/** Removes what `preparePodman` has made; the image stays for the next time. */
export function forgetPodman(): void {
  const settings = process.env["CONTAINERS_CONF"];
  if (settings?.includes("heddle-podman-")) rmSync(join(settings, ".."), { recursive: true });
}

function importImage(busybox: string): void {
  try {
    execFileSync("podman", ["image", "exists", image], quiet);
    return;
  } catch {
    // It is made now.
  }
  const folder = mkdtempSync(join(tmpdir(), "heddle-image-"));
  try {
    mkdirSync(join(folder, "root/bin"), { recursive: true });
    copyFileSync(busybox, join(folder, "root/bin/busybox"));
    for (const name of tools) symlinkSync("busybox", join(folder, "root/bin", name));
    execFileSync("tar", ["-C", join(folder, "root"), "-cf", join(folder, "image.tar"), "."]);
    execFileSync("podman", ["import", join(folder, "image.tar"), image], quiet);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function tryRun(options: readonly string[], network = ["--network", "host"]): string {
  const how = ["--rm", ...network, "--memory", "64m", "--pids-limit", "64", ...limits];
  const name = `heddle-test-${process.pid}`;
  how.push("--name", name);
  try {
    execFileSync("podman", [...options, "run", ...how, image, "/bin/sh", "-c", "exit 0"], quiet);
    return "";
  } catch (error) {
    // A late call has not removed it.
    spawnSync("podman", ["rm", "--force", "--ignore", name], quiet);
    const { stderr } = error as { stderr?: Buffer };
    return (stderr?.toString().trim() || String(error)).slice(0, 300);
  }
}
