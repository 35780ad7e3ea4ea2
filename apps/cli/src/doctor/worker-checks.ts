import { execFile } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { queryGpus } from "@heddle/node-agent/gpu-probe";
import { fieldsOf, textOf, textsOf } from "../http/json-fields.ts";
import { ISOLATION_PROGRAM } from "../up/cluster-plan.ts";
import { type Finding, Reporter } from "./finding.ts";

const ISOLATION_TIMEOUT_MS = 60_000;
const NVIDIA_VENDOR = "0x10de";
const DISPLAY_CLASS = "0x03";
const MIB = 2 ** 20;

/** Where Linux shows its devices. */
interface DeviceFolders {
  readonly pci: string;
  readonly devices: string;
}
const FOLDERS: DeviceFolders = { pci: "/sys/bus/pci/devices", devices: "/dev" };

/** The NVIDIA devices of this machine, and whether its driver shows them. */
export async function checkGpu({ pci, devices }: DeviceFolders = FOLDERS): Promise<Finding> {
  const report = new Reporter("gpu", hostname());
  const found = await queryGpus();
  if ("fault" in found) {
    const count = nvidiaDevices(pci);
    const isMapped = existsSync(join(devices, "nvidiactl"));
    if (count === 0 && !isMapped) return report.ok("no NVIDIA GPU: models run on the CPU");
    return report.error(
      `there are NVIDIA devices, but nvidia-smi shows none: ${found.fault}`,
      "Install NVIDIA's driver and restart the machine; start a container with --gpus all.",
    );
  }
  const { gpus } = found;
  const sorts = gpus.map(
    ({ name, memoryBytes = 0 }) => `${name} ${Math.round(Number(memoryBytes) / MIB)} MiB`,
  );
  const what = `${gpus.length} GPUs: ${[...new Set(sorts)].join(", ")}`;
  if (!existsSync(join(devices, "nvidia-uvm"))) {
    const missing = `${what}; ${join(devices, "nvidia-uvm")} is missing, without which CUDA fails`;
    return report.error(missing, "modprobe nvidia-uvm; start a container with --gpus all.");
  }
  return report.ok(what);
}

function nvidiaDevices(pci: string): number {
  try {
    return readdirSync(pci).filter((name) => {
      const read = (file: string) => readFileSync(join(pci, name, file), "utf8").trim();
      return read("vendor") === NVIDIA_VENDOR && read("class").startsWith(DISPLAY_CLASS);
    }).length;
  } catch {
    return 0; // No Linux, or a container without it.
  }
}

/** How a worker of this user would keep its tasks from its secrets, by the trial of its start. */
export async function checkIsolation(program = ISOLATION_PROGRAM): Promise<Finding> {
  const report = new Reporter("isolation", hostname());
  const { printed, fault } = await printedBy(program);
  const result = fieldsOf(printed);
  const [level, reasons] = [textOf(result["level"]), textsOf(result["reasons"])];
  if (level === "") {
    return report.error(
      `the trial of a worker's start failed: ${fault}`,
      "Repair what the message names: a worker does not start otherwise.",
    );
  }
  if (level !== "none") return report.ok(`tasks of a worker of this user get: ${level}`);
  return report.error(
    `tasks could read a worker's secrets, so jobs do not run: ${reasons.join("; ")}`,
    "Run workers as root, or as another user on Linux 5.13 or newer with Landlock; --task-isolation optional allows jobs without it.",
  );
}

function printedBy(program: string): Promise<{ printed: unknown; fault: string }> {
  const options = { timeout: ISOLATION_TIMEOUT_MS, killSignal: "SIGKILL" as const };
  return new Promise((resolve) => {
    execFile(process.execPath, [program], options, (error, stdout, stderr) => {
      try {
        resolve({ printed: JSON.parse(stdout), fault: "" });
      } catch {
        const last = stderr.trim().split("\n").at(-1);
        resolve({ printed: undefined, fault: last || error?.message || "it printed nothing" });
      }
    });
  });
}
