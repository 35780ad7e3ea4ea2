import type { Duplex } from "node:stream";
import { retry } from "@heddle/base/async/retry";
import { AppError, type ErrorCode, toAppError } from "@heddle/base/errors";
import type { Engine, EngineOptions, LlamaDeployment } from "@heddle/contracts/engine";
import type { ModelStage } from "@heddle/contracts/models/model-division";
import { readGguf } from "@heddle/engines/gguf/gguf-reader";
import { BATCH_TOKENS } from "@heddle/engines/llama/engine-thread/batch";
import { defaultThreads, startLlamaEngine } from "@heddle/engines/llama/parent/llama-engine";
import { cutRuleOf } from "@heddle/engines/shards/cut-rules";
import { StageEngine } from "@heddle/engines/shards/ring/stage-engine";
import { STAGE_BUILD } from "@heddle/engines/shards/ring/stage-frame";
import { StageHub } from "@heddle/engines/shards/ring/stage-hub";
import { StageTimes } from "@heddle/engines/shards/ring/stage-times";
import { indexOfShard } from "@heddle/engines/shards/weights/stage-folder";
import type { EngineFactory, WorkerEngine } from "../engine-ports.ts";
import type { KnownPeers } from "./join-peers.ts";

type EngineStart = Omit<Parameters<EngineFactory>[0], "spec" | "modelPath">;

const LOST = "a stage of the model is lost, and joins again";
/** A stage of another build, or of another worker, remains one. */
const FINAL: ReadonlySet<ErrorCode> = new Set(["precondition_failed", "permission_denied"]);
const REJOIN_BACKOFF = { baseMs: 100, maxMs: 2_000 };

/**
 * Starts this worker's part of a model: the last stage as an engine that drives the others, or one of
 * the others. `path` is the file of its blocks.
 */
export async function startStagedEngine(
  { stage, ...spec }: LlamaDeployment & { readonly stage: ModelStage },
  path: string,
  start: EngineStart,
): Promise<WorkerEngine> {
  const { contextTokens, kvTokens, maxSequences } = stage;
  const sizes = { contextTokens, kvTokens, maxSequences };
  const build = [STAGE_BUILD, BATCH_TOKENS, indexOfShard(path), ...Object.values(sizes)].join("/");
  if (stage.peers.length > 0) {
    const options = { ...spec.options, ...sizes };
    return startDriver({ options, split: spec.split, stage, path, build }, start);
  }
  const rule = cutRuleOf(await readGguf(path));
  const threads = spec.options.threads ?? defaultThreads();
  const { split, options } = spec;
  const on = { threads, device: options.device, gpuLayers: options.gpuLayers, split };
  const engine = await StageEngine.start({
    ...start,
    start: { path, rule, ...on, kvTokens, maxSequences, from: stage.from, to: stage.to },
    driver: stage.driver,
  });
  const join = (frames: Duplex) => engine.join(frames);
  return Object.assign(engine, { stage: { build, join, left: () => engine.left() } });
}

interface Driver extends Pick<LlamaDeployment, "split"> {
  readonly options: EngineOptions;
  readonly stage: ModelStage;
  readonly path: string;
  readonly build: string;
}

/** What opens streams to the stages before the last: once, and until it is done. */
function streamsTo(
  { stage, build }: Pick<Driver, "stage" | "build">,
  { joinPeers, ...start }: EngineStart,
) {
  const known: KnownPeers = { joined: new Set(), unreachable: new Map() };
  const join = async () => {
    if (!joinPeers) throw new AppError("unavailable", "this worker is in no cluster");
    const stages = await joinPeers(start.stage?.() ?? stage, build, known);
    return stages.map(({ frames }) => frames);
  };
  const connect = async (signal: AbortSignal) => {
    let used: readonly Duplex[] = [];
    try {
      used = await retry(join, {
        backoff: REJOIN_BACKOFF,
        signal,
        isPassing: (error) => !FINAL.has(toAppError(error).code),
        onRetry: (error) => start.onWaiting?.(toAppError(error).message, known.unreachable),
      });
      return used;
    } finally {
      for (const { frames } of known.joined) if (!used.includes(frames)) frames.destroy();
    }
  };
  return { join, connect };
}

/** Resolves when all stages have joined. While one is lost it takes no further requests. */
async function startDriver(
  { options, split, stage, path, build }: Driver,
  { joinPeers, ...start }: EngineStart,
): Promise<WorkerEngine> {
  const { join, connect } = streamsTo({ stage, build }, { joinPeers, ...start });
  // The first to be joined, before the model is loaded: the reason why they cannot be is reported.
  let first: readonly Duplex[] | undefined = await connect(start.signal);
  const state = { isStarted: false, isUp: true, isJoined: false };
  const settle = (change: Partial<typeof state>) => {
    Object.assign(state, change);
    if (state.isStarted && state.isUp && state.isJoined) start.onRecovered();
  };
  const times = new StageTimes();
  let engine: WorkerEngine | undefined;
  /** Where a stage remains one of another build the engine ends with that reason. */
  const rejoin = async (signal: AbortSignal) => {
    try {
      return await connect(signal);
    } catch (error) {
      if (engine && !signal.aborted) {
        void engine.close();
        start.onExit(toAppError(error));
      }
      throw error;
    }
  };
  let hub: StageHub | undefined;
  const onLink = (link: Duplex) => {
    hub = new StageHub(link, {
      times,
      connectMoved: join,
      connect: async (signal) => {
        const streams = first;
        first = undefined;
        return streams ?? (await rejoin(signal));
      },
      onChange: (isJoined) => {
        if (!isJoined && state.isStarted) start.onDown(new AppError("unavailable", LOST));
        settle({ isJoined });
      },
    });
  };
  const started = await startLlamaEngine(
    {
      ...start,
      modelPath: path,
      options,
      split,
      onRestart: (reason) => {
        state.isUp = false;
        start.onDown(reason);
      },
      onRecovered: () => settle({ isUp: true }),
    },
    { count: stage.peers.length, blocks: stage.from, join: onLink },
  );
  state.isStarted = true;
  engine = Object.assign(timed(started, times), { moveStages: () => hub?.move() });
  return engine;
}

/** The engine, whose load has the times of its stage. */
function timed(engine: Engine, times: StageTimes): WorkerEngine {
  const load = engine.load.bind(engine);
  return Object.assign(engine, { load: () => ({ ...load(), stage: times.load }) });
}
