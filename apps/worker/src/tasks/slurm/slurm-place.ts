import { AppError } from "@heddle/base/errors";
import type { SlurmSettings } from "../../config/slurm-settings.ts";
import { type BatchPlace, MAX_BATCH_DEVICES, placeOffer } from "../batch/batch-place.ts";
import { runSlurm } from "./slurm-cli.ts";
import { SlurmSystem } from "./slurm-system.ts";

/** States of nodes on which nothing is started. */
const AWAY = /^(down|drain|fail|unk|maint|boot|power|inval|planned_down)|\*$/;

/** Rejects where Slurm does not answer, or the partition has no node. */
export async function slurmPlace(settings: SlurmSettings): Promise<BatchPlace> {
  const { partition } = settings;
  const where = partition === "" ? [] : [`--partition=${partition}`];
  const format = "--format=%N|%c|%m|%G|%t|%P";
  const text = await runSlurm("sinfo", ["--noheader", "--Node", format, ...where]);
  const nodes = nodesIn(text, partition);
  if (nodes.length === 0) {
    const what = partition === "" ? "its default partition" : `the partition ${partition}`;
    const message = `Slurm has no node that is up in ${what}: see sinfo, or name another with --slurm-partition`;
    throw new AppError("unavailable", message);
  }
  const sum = (of: (node: SlurmNode) => number) =>
    nodes.reduce((total, node) => total + of(node), 0);
  // Of all nodes together; Slurm decides on which of them a task runs.
  const offer = placeOffer("slurm", {
    gpus: nodes.flatMap(({ devices }) => devicesIn(devices)),
    cpus: sum(({ cpus }) => cpus),
    memoryBytes: sum(({ memoryMib }) => memoryMib) * 2 ** 20,
  });
  return { title: "Slurm", folder: "slurm", offer, system: new SlurmSystem(settings) };
}

interface SlurmNode {
  readonly cpus: number;
  readonly memoryMib: number;
  readonly devices: string;
}

/** Each node once, of the named or the default partition, whose name has a star. */
function nodesIn(text: string, partition: string): SlurmNode[] {
  const nodes = new Map<string, SlurmNode>();
  for (const line of text.split("\n")) {
    const [name = "", cpus, memoryMib, devices = "", state = "", of = ""] = line.split("|");
    if (name === "" || AWAY.test(state)) continue;
    if (partition === "" && !of.endsWith("*")) continue;
    nodes.set(name, {
      cpus: Number(cpus),
      memoryMib: Number.parseInt(memoryMib ?? "", 10),
      devices,
    });
  }
  return [...nodes.values()];
}

/** For example `gpu:h100:4(S:0-1),gpu:2`: the model of each device. */
function devicesIn(text: string): string[] {
  return [...text.matchAll(/\bgpu(?::([\w.-]*[a-z_][\w.-]*))?:(\d+)/gi)].flatMap(
    ([, model = "gpu", count]) =>
      Array<string>(Math.min(Number(count), MAX_BATCH_DEVICES)).fill(model),
  );
}
