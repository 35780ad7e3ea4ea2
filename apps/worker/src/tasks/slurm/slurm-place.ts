import { AppError } from "@heddle/base/errors";
import type { Gpu } from "@heddle/contracts/generated/heddle/v1/Gpu";
import type { PlaceOffer } from "@heddle/node-agent/machine";
import type { SlurmSettings } from "../../config/slurm-settings.ts";
import { runSlurm } from "./slurm-cli.ts";

const MAX_DEVICES = 1_024;
/** Of nodes on which nothing is started. */
const AWAY = /^(down|drain|fail|unk|maint|boot|power|inval|planned_down)|\*$/;

/** The part of a Slurm cluster that a worker gives its tasks to. */
export class SlurmPlace {
  readonly settings: SlurmSettings;
  readonly offer: PlaceOffer;

  private constructor(settings: SlurmSettings, offer: PlaceOffer) {
    this.settings = settings;
    this.offer = offer;
  }

  /** Rejects where Slurm does not answer, or the partition has no node. */
  static async find(settings: SlurmSettings): Promise<SlurmPlace> {
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
    return new SlurmPlace(settings, offerOf(nodes));
  }
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

/** Of all nodes together; Slurm decides on which of them a task runs. */
function offerOf(nodes: readonly SlurmNode[]): PlaceOffer {
  const sum = (of: (node: SlurmNode) => number) =>
    nodes.reduce((total, node) => total + of(node), 0);
  return {
    id: "slurm",
    gpus: nodes
      .flatMap(({ devices }) => devicesIn(devices))
      .slice(0, MAX_DEVICES)
      .map(gpuOf),
    cpuMilli: sum(({ cpus }) => cpus) * 1_000,
    memoryBytes: sum(({ memoryMib }) => memoryMib) * 2 ** 20,
  };
}

/** As `gpu:h100:4(S:0-1),gpu:2`: the model of each device. */
function devicesIn(text: string): string[] {
  return [...text.matchAll(/\bgpu(?::([\w.-]*[a-z_][\w.-]*))?:(\d+)/gi)].flatMap(
    ([, model = "gpu", count]) => Array<string>(Math.min(Number(count), MAX_DEVICES)).fill(model),
  );
}

function gpuOf(name: string, index: number): Gpu {
  return {
    index,
    uuid: `slurm-${index}`,
    name,
    memoryBytes: 0,
    memoryUsedBytes: 0,
    utilizationPercent: 0,
    temperatureCelsius: 0,
    powerWatts: 0,
    simulated: false,
    fault: "",
  };
}
