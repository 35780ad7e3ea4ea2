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
  /** Keyed by concurrency, the turns of this round. */
  readonly decode: Readonly<Record<number, readonly DecodeCost[]>>;
  /** One request after the other. */
  readonly firstToken: readonly FirstTokenResult[];
  readonly sharedPrefix: { readonly meanFirstTokenMs: number; readonly cachedTokens: number };
  readonly longPrompt: {
    readonly worstGapMs: number;
    readonly gapMs: Summary;
    readonly firstTokenMs: number;
  };
  /** CPU of the server while others were measured, of one core. */
  readonly idleCpuPercent: number;
}

/** Other load lowers a rate; CPU time per token is the server's own cost. */
interface DecodeCost extends DecodeResult {
  readonly cpuMsPerToken: number;
  readonly cpuMsPerTokenByRole: Readonly<Record<string, number>>;
}

const decodeTurns = 4;
/** With fewer streams each has more tokens, so that a turn takes seconds. */
const leastTokensOfATurn = 256;
const firstTokenRequests = 20;
const prefixRequests = 8;

/**
 * Only one server is under load at a time. The servers alternate within seconds, per workload and
 * with the same prompts, so that other load affects all of them.
 */
export async function measureRounds(
  servers: readonly InferenceServer[],
  plan: RoundPlan,
): Promise<readonly MeasuredRound[]> {
  for (const server of servers) {
    await decode(server, { seed: 7, bannedTokens: plan.bannedTokens }, 4, 16);
  }
  const measured: MeasuredRound[] = [];
  const turns = new Turns(servers);
  for (let round = 1; round <= plan.rounds; round += 1) {
    const results = await measureRound(turns, plan, round);
    for (const result of results) {
      console.log(`round ${round}  ${result.server.padEnd(14)}  ${describe(result)}`);
    }
    measured.push(...results);
  }
  return measured;
}

async function measureRound(
  turns: Turns,
  plan: RoundPlan,
  round: number,
): Promise<readonly MeasuredRound[]> {
  const { bannedTokens, maxTokens } = plan;
  const options = (more: number) => ({ seed: round * 1_000 + more, bannedTokens });
  turns.forgetIdle();
  const decodes: Record<number, (readonly DecodeCost[])[]> = {};
  for (const concurrency of plan.concurrencies) {
    const tokens = Math.max(maxTokens, Math.ceil(leastTokensOfATurn / concurrency));
    decodes[concurrency] = await repeat(decodeTurns, (turn) =>
      turns.take((server) =>
        decodeCost(server, () =>
          decode(server, options(concurrency + 100 * turn), concurrency, tokens),
        ),
      ),
    );
  }
  const firsts = await repeat(firstTokenRequests, (request) =>
    turns.take((server) => firstToken(server, options(50), request)),
  );
  const prefixes = await turns.take((server) => sharedPrefix(server, options(60), prefixRequests));
  const longs = await turns.take((server) => longPromptAmongDecodes(server, options(70)));
  return turns.servers.map(({ name }, at) => ({
    round,
    server: name,
    decode: Object.fromEntries(
      Object.entries(decodes).map(([concurrency, all]) => [concurrency, all.map((of) => of[at]!)]),
    ),
    firstToken: firsts.map((of) => of[at]!),
    sharedPrefix: prefixes[at]!,
    longPrompt: longs[at]!,
    idleCpuPercent: turns.idleCpuPercent(at),
  }));
}

/** Runs the same on each server in turn, and measures the waiting ones. */
class Turns {
  readonly servers: readonly InferenceServer[];
  /** Indexed by server: its waiting time, and the CPU time used in it. */
  #idle: { ms: number; cpuMs: number }[] = [];
  #taken = 0;

  constructor(servers: readonly InferenceServer[]) {
    this.servers = servers;
    this.forgetIdle();
  }

  forgetIdle(): void {
    this.#idle = this.servers.map(() => ({ ms: 0, cpuMs: 0 }));
  }

  idleCpuPercent(at: number): number {
    const { ms, cpuMs } = this.#idle[at]!;
    return ms === 0 ? 0 : (cpuMs / ms) * 100;
  }

  /** The results in the order of the servers; the first one alternates. */
  async take<T>(run: (server: InferenceServer) => Promise<T>): Promise<readonly T[]> {
    const results: T[] = [];
    const places = this.servers.map((_, at) => at);
    this.#taken += 1;
    for (const at of this.#taken % 2 === 1 ? places : places.toReversed()) {
      const cpuBefore = this.servers.map(cpuMs);
      const startedAt = performance.now();
      results[at] = await run(this.servers[at]!);
      const ms = performance.now() - startedAt;
      for (const other of places) {
        if (other === at) continue;
        const idle = this.#idle[other]!;
        idle.ms += ms;
        idle.cpuMs += cpuMs(this.servers[other]!) - cpuBefore[other]!;
      }
    }
    return results;
  }
}

async function repeat<T>(times: number, run: (index: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  for (let index = 0; index < times; index += 1) results.push(await run(index));
  return results;
}

async function decodeCost(
  server: InferenceServer,
  run: () => Promise<DecodeResult>,
): Promise<DecodeCost> {
  const before = cpuByRole(server);
  const result = await run();
  const cpu = Object.entries(cpuByRole(server)).map(
    ([role, ms]) => [role, (ms - (before[role] ?? 0)) / result.completionTokens] as const,
  );
  const cpuMsPerToken = cpu.reduce((sum, [, ms]) => sum + ms, 0);
  return { ...result, cpuMsPerToken, cpuMsPerTokenByRole: Object.fromEntries(cpu) };
}

function cpuByRole(server: InferenceServer): Record<string, number> {
  const byRole: Record<string, number> = {};
  for (const { pid, role } of server.processes()) {
    byRole[role] = (byRole[role] ?? 0) + (sampleProcess(pid)?.cpuMs ?? 0);
  }
  return byRole;
}

function cpuMs(server: InferenceServer): number {
  return Object.values(cpuByRole(server)).reduce((sum, ms) => sum + ms, 0);
}

function describe(result: MeasuredRound): string {
  const rates = Object.entries(result.decode).map(
    ([concurrency, turns]) => `c=${concurrency} ${list(turns.map((t) => t.tokensPerSecond))} t/s`,
  );
  const first = `first token ${list(result.firstToken.slice(0, 4).map((t) => t.ms))} ... ms`;
  const prefix = `prefix ${result.sharedPrefix.meanFirstTokenMs.toFixed(0)} ms`;
  const worst = `worst gap ${result.longPrompt.worstGapMs.toFixed(0)} ms`;
  return [...rates, first, prefix, worst].join("  ");
}

function list(values: readonly number[]): string {
  return values.map((value) => value.toFixed(0)).join("/");
}
