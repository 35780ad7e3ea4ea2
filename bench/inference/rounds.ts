import { sampleProcess } from "../support/proc-files.ts";
import type { Summary } from "../support/statistics.ts";
import type { InferenceServer } from "./servers.ts";
import {
  type DecodeResult,
  decode,
  type FirstTokenResult,
  firstToken,
  longPromptAmongDecodes,
  sharedPrefix,
} from "./workloads.ts";

interface RoundPlan {
  readonly rounds: number;
  readonly concurrencies: readonly number[];
  readonly maxTokens: number;
  readonly bannedTokens: readonly number[];
}

/** All workloads of one server in one round. */
export interface MeasuredRound {
  readonly round: number;
  readonly server: string;
  /** By concurrency. */
  readonly decode: Readonly<Record<number, DecodeCost>>;
  readonly firstTokenMs: FirstTokenResult;
  readonly sharedPrefix: { readonly meanFirstTokenMs: number; readonly cachedTokens: number };
  readonly longPrompt: {
    readonly worstGapMs: number;
    readonly gapMs: Summary;
    readonly firstTokenMs: number;
  };
  /** CPU of the servers that were not measured meanwhile, of one core. */
  readonly idleCpuPercent: number;
}

/** What else the machine does slows a rate down; CPU time a token tells what a server itself needs. */
interface DecodeCost extends DecodeResult {
  readonly cpuMsPerToken: number;
  readonly cpuMsPerTokenByRole: Readonly<Record<string, number>>;
}

const firstTokenRequests = 20;
const prefixRequests = 8;

/** One server is under load at a time; each round gives every server the same prompts in turn. */
export async function measureRounds(
  servers: readonly InferenceServer[],
  plan: RoundPlan,
): Promise<readonly MeasuredRound[]> {
  for (const server of servers) {
    await decode(server, { seed: 7, bannedTokens: plan.bannedTokens }, 4, 16);
  }
  const measured: MeasuredRound[] = [];
  for (let round = 1; round <= plan.rounds; round += 1) {
    // The order turns every round, so that neither side always goes first.
    const order = round % 2 === 1 ? servers : servers.toReversed();
    for (const server of order) {
      const idle = servers.filter((other) => other !== server);
      const cpu = cpuMs(idle);
      const startedAt = performance.now();
      const result = await measureRound(server, plan, round);
      const idleCpuPercent = ((cpuMs(idle) - cpu) / (performance.now() - startedAt)) * 100;
      measured.push({ ...result, idleCpuPercent });
      console.log(`round ${round}  ${server.name.padEnd(14)}  ${describe(result)}`);
    }
  }
  return measured;
}

async function measureRound(
  server: InferenceServer,
  plan: RoundPlan,
  round: number,
): Promise<Omit<MeasuredRound, "idleCpuPercent">> {
  const options = { seed: round * 1_000, bannedTokens: plan.bannedTokens };
  const byConcurrency: Record<number, DecodeCost> = {};
  for (const concurrency of plan.concurrencies) {
    const seed = options.seed + concurrency;
    const load = { ...options, seed };
    const before = cpuByRole(server);
    const result = await decode(server, load, concurrency, plan.maxTokens);
    const cpu = Object.entries(cpuByRole(server)).map(
      ([role, ms]) => [role, (ms - (before[role] ?? 0)) / result.completionTokens] as const,
    );
    const cpuMsPerToken = cpu.reduce((sum, [, ms]) => sum + ms, 0);
    const cpuMsPerTokenByRole = Object.fromEntries(cpu);
    byConcurrency[concurrency] = { ...result, cpuMsPerToken, cpuMsPerTokenByRole };
  }
  return {
    round,
    server: server.name,
    decode: byConcurrency,
    firstTokenMs: await firstToken(
      server,
      { ...options, seed: options.seed + 50 },
      firstTokenRequests,
    ),
    sharedPrefix: await sharedPrefix(
      server,
      { ...options, seed: options.seed + 60 },
      prefixRequests,
    ),
    longPrompt: await longPromptAmongDecodes(server, { ...options, seed: options.seed + 70 }),
  };
}

function cpuByRole(server: InferenceServer): Record<string, number> {
  const byRole: Record<string, number> = {};
  for (const { pid, role } of server.processes()) {
    byRole[role] = (byRole[role] ?? 0) + (sampleProcess(pid)?.cpuMs ?? 0);
  }
  return byRole;
}

function cpuMs(servers: readonly InferenceServer[]): number {
  const pids = servers.flatMap((server) => server.processes().map(({ pid }) => pid));
  return pids.reduce((sum, pid) => sum + (sampleProcess(pid)?.cpuMs ?? 0), 0);
}

function describe(result: Omit<MeasuredRound, "idleCpuPercent">): string {
  const rates = Object.entries(result.decode).map(
    ([concurrency, { tokensPerSecond }]) => `c=${concurrency} ${tokensPerSecond.toFixed(0)} t/s`,
  );
  const first = `first token ${result.firstTokenMs.p50.toFixed(0)} ms`;
  const prefix = `prefix ${result.sharedPrefix.meanFirstTokenMs.toFixed(0)} ms`;
  const worst = `worst gap ${result.longPrompt.worstGapMs.toFixed(0)} ms`;
  return [...rates, first, prefix, worst].join("  ");
}
