import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { hostname, tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { resourceLimits } from "@heddle/node-agent/control-groups";
import { freePortAfter, isFree, LOOPBACK } from "../up/ports.ts";
import { type Finding, Reporter } from "./finding.ts";

const OLDEST_NODE = [22, 12] as const;
const MIB = 2 ** 20;
/** A master, a worker and a tiny model need some 700 MiB. */
const LEAST_MEMORY_MIB = 768;
const USUAL_MEMORY_MIB = 2_048;
const USUAL_OPEN_FILES = 4_096;

/** Node is the one that runs this command; `version` as in `process.version`. */
export function checkNode(version = process.version): Finding {
  const report = new Reporter("node-version", process.execPath);
  const [major = 0, minor = 0] = version.replace(/^v/, "").split(".").map(Number);
  const [oldest, oldestMinor] = OLDEST_NODE;
  if (major > oldest || (major === oldest && minor >= oldestMinor)) {
    return report.ok(`Node ${version}`);
  }
  return report.error(
    `Node ${version} is older than ${OLDEST_NODE.join(".")}`,
    "Install Node 24 (https://nodejs.org), or start heddle with its own launcher, which brings one.",
  );
}

/** The memory that this machine or its container has. */
export function checkMemory(limits = resourceLimits(), machineBytes = totalmem()): Finding {
  const group = limits.map(({ memoryBytes }) => Number(memoryBytes) || Infinity);
  const bytes = Math.min(machineBytes, ...group);
  const report = new Reporter("memory", hostname());
  const whose = bytes < machineBytes ? "this container or service" : "this machine";
  const what = `${whose} has ${Math.floor(bytes / MIB)} MiB`;
  const fix = `Give it ${USUAL_MEMORY_MIB} MiB or more, or start with --profile tiny.`;
  if (bytes < LEAST_MEMORY_MIB * MIB) return report.error(what, fix);
  if (bytes < USUAL_MEMORY_MIB * MIB) return report.warning(what, fix);
  return report.ok(what);
}

/** The text is that of proc(5), `limits`. */
export function checkOpenFiles(text = readIfThere("/proc/self/limits")): Finding {
  const report = new Reporter("open-files", hostname());
  const limit = /^Max open files\s+(\d+|unlimited)/m.exec(text ?? "")?.[1];
  if (limit === undefined) return report.skipped("this system does not show its limit");
  const what = `a process may open ${limit} files`;
  if (limit === "unlimited" || Number(limit) >= USUAL_OPEN_FILES) return report.ok(what);
  return report.warning(
    what,
    "Raise it: `ulimit -n 65536` in the shell, or LimitNOFILE=65536 in a systemd unit.",
  );
}

/** Sockets of tasks and pulled files lie in the temporary folder. */
export function checkTemporaryFolder(folder = tmpdir()): Finding {
  const report = new Reporter("temporary-folder", folder);
  try {
    const own = mkdtempSync(join(folder, "heddle-doctor-"));
    try {
      writeFileSync(join(own, "file"), "written");
    } finally {
      rmSync(own, { recursive: true, force: true });
    }
    return report.ok("files can be written");
  } catch (error) {
    return report.error(
      `no file can be written: ${(error as Error).message}`,
      "Free space there, make it writable, or set TMPDIR to another folder.",
    );
  }
}

/** Each HTTP port of the masters that `heddle up` would start. */
export async function checkPorts(first: number, masters: number): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (let port = first; port < first + masters; port++) {
    const report = new Reporter("port", `${LOOPBACK}:${port}`);
    if (await isFree(port)) findings.push(report.ok("the port is free"));
    else {
      const free = (await freePortAfter(first, masters)) ?? "PORT";
      findings.push(
        report.error(
          "another program uses the port, or this user may not listen on it",
          `Stop that program (\`ss -ltnp "sport = :${port}"\` shows it), or give another: heddle up --port ${free}`,
        ),
      );
    }
  }
  return findings;
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}
