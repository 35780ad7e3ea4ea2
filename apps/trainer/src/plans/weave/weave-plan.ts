import { join } from "node:path";
import type { LanguageModelTraining, SupervisedTraining } from "@heddle/contracts/training";
import type { Backend } from "@heddle/training/backend";
import {
  type LanguageModelShape,
  languageModelProgram,
} from "@heddle/training/language-model/language-model";
import { emitModel } from "@heddle/training/onnx/emit-model";
import { ADAM, type Optimizer } from "@heddle/training/optimizers/optimizer";
import { supervisedModel, supervisedProgram } from "@heddle/training/supervised/supervised-program";
import type { RoundReport } from "@heddle/training/training-loop";
import type { TrainingProgram } from "@heddle/training/training-program";
import { type BatchSource, rowBatches, textBatches } from "@heddle/training/weave/batches";
import { outerServers } from "@heddle/training/weave/outer-optimizer";
import type { WeaveProgress } from "@heddle/training/weave/weave-options";
import { weaveSchedule } from "@heddle/training/weave/weave-schedule";
import { runWeaveWorker } from "@heddle/training/weave/weave-worker";
import { joinText, readTrainingData, type TrainingData } from "../../data/data-files.ts";
import { sampleData } from "../../data/sample-text.ts";
import { readTable, splitTable } from "../../data/table-data.ts";
import { type TextTokenizer, textTokenizer } from "../../data/text-tokenizer.ts";
import { tokenizerJson } from "../../data/tokenizer-json.ts";
import { writeArtifact } from "../../data/write-artifact.ts";
import { exportLanguageModel } from "../../export/export-language-model.ts";
import type { TaskPlace } from "../ppo/ppo-plan.ts";
import { drawsBehind } from "../seeds.ts";
import type { TrainingPlan } from "../training-plan.ts";

type WeaveTraining = LanguageModelTraining | SupervisedTraining;

/** Characters of a tokenizer's digest in the embedding's name. */
const DIGEST_CHARACTERS = 16;

/** The use of the seed for a weave job's positions in its data. */
const DATA_DRAWS = 0;

/** The part of a weave job that depends on its program. */
interface Subject {
  readonly program: TrainingProgram;
  readonly batches: (done: number) => BatchSource;
  /** The tokens of one step of all workers; absent where the data is not text. */
  readonly tokens?: number | undefined;
  readonly tokenizer?: TrainingPlan["tokenizer"];
  readonly writeArtifacts: TrainingPlan["writeArtifacts"];
}

/**
 * A `weave` job on `nodes` nodes. Throws an AppError `invalid_value` where its data is unusable.
 */
export function weavePlan(
  config: WeaveTraining,
  backend: Backend,
  place: TaskPlace & { readonly nodes: number },
): TrainingPlan {
  const data = config.data.length === 0 ? sampleData() : readTrainingData(config.data);
  const subject =
    config.program === "language_model"
      ? languageModel(config, data, place)
      : supervised(config, data, place);
  const { program } = subject;
  const schedule = weaveSchedule(config);
  // Under ssp and asp each node's part is an update by itself; all of them together make one step.
  const outer = { learningRate: config.outer_learning_rate, momentum: config.outer_momentum };
  const parts = config.consistency === "bsp" ? 1 : place.nodes;
  return {
    rounds: schedule.rounds,
    stepAfter: schedule.stepAfter,
    parameters: program.parameters,
    servers: outerServers(outer, parts),
    pushesPerRound: 1,
    fragments: config.fragments > 1 || config.overlap_steps > 0 ? config.fragments : undefined,
    data: data.digest,
    tokenizer: subject.tokenizer,
    run: (loop) =>
      runWeaveWorker({
        config: averagedByLeader(config, place),
        program,
        backend,
        optimizer: innerOptimizer(config),
        batch: config.batch_size,
        batches: subject.batches(loop.done),
        client: loop.client,
        exchange: loop.exchange,
        parameters: loop.parameters,
        state: loop.state,
        done: loop.done,
        signal: loop.signal,
        report: async (progress) => {
          const tokens = subject.tokens && subject.tokens * schedule.stepsOf(progress.round);
          await loop.report(reportOf(progress, tokens));
        },
      }),
    writeArtifacts: subject.writeArtifacts,
  };
}

/** Rank 0 exports the model: the others need no average. */
function averagedByLeader(config: WeaveTraining, { rank }: TaskPlace): WeaveTraining {
  return rank === 0 ? config : { ...config, average_steps: 0 };
}

/** A language model on all text of the data. */
function languageModel(
  config: LanguageModelTraining,
  data: TrainingData,
  place: TaskPlace,
): Subject {
  const bytes = joinText(data);
  const tokenizer = textTokenizer(config.tokenizer, bytes);
  const shape = languageModelShape(config, tokenizer);
  const text = tokenizer.encode(bytes);
  const size = { batch: config.batch_size, length: config.context_length };
  return {
    program: languageModelProgram(shape, config.batch_size),
    batches: (done) => {
      const random = drawsAfter(config, place, done);
      return textBatches(text, size, random, { rank: place.rank, workers: place.tasks });
    },
    tokens: config.batch_size * config.context_length * place.tasks,
    tokenizer: {
      type: config.tokenizer.type,
      tokens: shape.vocab_size,
      sha256: tokenizer.digest,
    },
    writeArtifacts: async (directory, parameters, lineage) => {
      const model = { shape, vocabulary: tokenizer.vocabulary, parameters, lineage };
      const write = (path: string) => exportLanguageModel(path, model);
      await writeArtifact(join(directory, "model.gguf"), write);
      if (config.tokenizer.type === "byte") return;
      await writeArtifact(join(directory, "tokenizer.json"), tokenizerJson(tokenizer.vocabulary));
    },
  };
}

function languageModelShape(
  config: LanguageModelTraining,
  { vocabulary, digest }: TextTokenizer,
): LanguageModelShape {
  return {
    ...config,
    vocab_size: vocabulary.tokens.length,
    vocabulary: digest?.slice(0, DIGEST_CHARACTERS),
  };
}

function supervised(config: SupervisedTraining, data: TrainingData, place: TaskPlace): Subject {
  const { rows, features, outputs } = splitTable(readTable(data), config);
  const shape = { features, outputs, task: config.program, hidden: config.hidden };
  return {
    program: supervisedProgram(shape, config.batch_size),
    batches: (done) => {
      const random = drawsAfter(config, place, done);
      return rowBatches(rows, config.batch_size, random, {
        rank: place.rank,
        workers: place.tasks,
      });
    },
    writeArtifacts: (directory, parameters) =>
      writeArtifact(
        join(directory, "model.onnx"),
        emitModel(supervisedModel(shape, parameters, 1)),
      ),
  };
}

/** The same for all ranks; after `done` rounds the same as in an uninterrupted run. */
function drawsAfter(config: WeaveTraining, { tasks }: TaskPlace, done: number) {
  const steps = weaveSchedule(config).stepAfter(done);
  return drawsBehind(steps * config.batch_size * tasks, config.seed, DATA_DRAWS);
}

function innerOptimizer(config: WeaveTraining): Optimizer {
  const { optimizer, momentum, weight_decay: weightDecay, local_steps: localSteps } = config;
  // Moments from before a pull are less informative after it.
  const adam = localSteps > 1 ? { ...ADAM, beta2: 0.99 } : ADAM;
  switch (optimizer) {
    case "sgd":
      return { kind: "sgd", momentum: 0, nesterov: false };
    case "momentum":
    case "nesterov":
      return { kind: "sgd", momentum, nesterov: optimizer === "nesterov" };
    case "adam":
      return adam;
    case "adamw":
      return { ...adam, kind: "adamw", weightDecay };
    default:
      return optimizer satisfies never;
  }
}

function reportOf(
  { round, step, loss, gradientNorm, learningRate, state }: WeaveProgress,
  tokens: number | undefined,
): RoundReport {
  return {
    round,
    step,
    loss,
    tokens,
    metrics: { gradient_norm: gradientNorm, learning_rate: learningRate },
    state,
  };
}
