import { threadsCpuMs } from "../support/proc-files.ts";
import { median } from "../support/statistics.ts";
import type { DataSide } from "./data-side.ts";
import { grpcJsSide } from "./grpc-js-side.ts";
import { type NativePeers, nativeSides } from "./native-side.ts";
import { ourSide } from "./our-side.ts";
import { startParameterProcess } from "./parameter-process.ts";

/** One direction of one way of moving parameters. */
export interface DirectionFigure {
  /** Median of the rounds, in GB/s (10^9 bytes). */
  readonly rate: number;
  /** Processor time of all processes of both ends, in ms for 10^9 bytes. */
  readonly cpuMsPerGb: number;
  /**
   * The time of each round, in order: those of all ways with one index were taken one after the
   * other.
   */
  readonly ms: readonly number[];
}

/** One way of moving parameters of one size. */
export interface DataPlaneFigure {
  readonly name: string;
  readonly megabytes: number;
  /** grpc-js alone does not add. */
  readonly push: DirectionFigure;
  readonly pull: DirectionFigure;
}

type Direction = "push" | "pull";

/** Milliseconds of each round. */
interface Samples {
  readonly ms: number[];
  readonly cpuMs: number[];
}

/** Ours by unix socket, TCP and gRPC, plain grpc-js and the peers that there are, in interleaved rounds. */
export async function measureDataPlane(
  rounds: number,
  peers: NativePeers,
): Promise<DataPlaneFigure[]> {
  const server = await startParameterProcess();
  const figures: DataPlaneFigure[] = [];
  for (const megabytes of [4, 64]) {
    const bytes = megabytes * 2 ** 20;
    const sides: DataSide[] = [];
    for (const path of ["unix", "tcp", "grpc"] as const) {
      sides.push(await ourSide(server, path, bytes));
    }
    sides.push(await grpcJsSide(bytes), ...(await nativeSides(peers, bytes)));
    figures.push(...(await measure(sides, megabytes, rounds)));
    for (const side of sides) await side.close();
  }
  return figures;
}

/** How often the first way is as fast as the second: the median of the ratios of each round. */
export function pairedRatio(first: DirectionFigure, second: DirectionFigure): number {
  return median(first.ms.map((ms, round) => (second.ms[round] ?? 0) / ms));
}

async function measure(
  sides: readonly DataSide[],
  megabytes: number,
  rounds: number,
): Promise<DataPlaneFigure[]> {
  const empty = (): Samples => ({ ms: [], cpuMs: [] });
  const all = sides.map((side) => ({ side, push: empty(), pull: empty() }));
  for (let round = 0; round <= rounds; round++) {
    for (const { side, push, pull } of all) {
      // The first round warms up.
      await side.begin?.();
      await sample(side, "push", round === 0 ? empty() : push);
      await side.complete?.();
      await sample(side, "pull", round === 0 ? empty() : pull);
    }
  }
  const gigabytes = (megabytes * 2 ** 20) / 1e9;
  const figure = ({ ms, cpuMs }: Samples): DirectionFigure => ({
    rate: (gigabytes * 1000) / median(ms),
    cpuMsPerGb: median(cpuMs) / gigabytes,
    ms,
  });
  return all.map(({ side, push, pull }) => ({
    name: side.name,
    megabytes,
    push: figure(push),
    pull: figure(pull),
  }));
}

async function sample(side: DataSide, direction: Direction, into: Samples): Promise<void> {
  const cpu = () => side.pids.reduce((sum, pid) => sum + threadsCpuMs(pid), 0);
  const before = cpu();
  into.ms.push(await side[direction]());
  into.cpuMs.push(cpu() - before);
}
