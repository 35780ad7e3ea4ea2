import { forEachLimit } from "@heddle/base/async/for-each-limit";
import { AppError, toAppError } from "@heddle/base/errors";
import {
  JUDGE,
  MODERATION_CATEGORIES,
  type ModerationRequest,
  moderationTexts,
} from "@heddle/contracts/api/inference/moderations";
import type { ModelRecord } from "@heddle/control/state";
import { Inject } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { MASTER_CONFIG } from "../../config/config.module.ts";
import type { MasterConfig } from "../../config/config.ts";
import type { CallerRequest } from "../../http/access.ts";
import { underParam } from "../embeddings/embedding-shards.ts";
import { cutShort, InferenceCalls, type PermittedCall } from "../inference-calls.ts";
import { judgeRequest, judgeScore } from "./judge-questions.ts";
import { moderationAnswer } from "./moderation-answer.ts";

/** Questions of a call at once. */
const QUESTIONS_PER_REPLICA = 4;
const MAX_QUESTIONS_AT_ONCE = 32;
/** The tokens of a question beside the text. */
const QUESTION_TOKENS = 128;

interface Prepared extends PermittedCall {
  readonly texts: readonly string[];
}

/** One text and one category. */
interface Question {
  readonly text: number;
  readonly category: number;
}

/** moderation-judge: a served model is asked about each category of each text. */
export class JudgeModeration {
  readonly #calls: InferenceCalls;
  readonly #config: Pick<MasterConfig, "moderationJudge">;

  constructor(
    @Inject(InferenceCalls) calls: InferenceCalls,
    @Inject(MASTER_CONFIG) config: Pick<MasterConfig, "moderationJudge">,
  ) {
    this.#calls = calls;
    // Its judge may change.
    this.#config = config;
  }

  answer(http: CallerRequest, reply: FastifyReply, request: ModerationRequest): Promise<void> {
    return this.#calls.answer(
      reply,
      () => this.#prepare(http, reply, request),
      async (prepared, signal) => {
        const scores = await this.#scores(http, prepared, signal);
        const answer = moderationAnswer(`${JUDGE}:${prepared.model.id}`, scores);
        this.#calls.send(http, reply, prepared, JSON.stringify(answer));
        return undefined;
      },
    );
  }

  async #prepare(
    http: CallerRequest,
    reply: FastifyReply,
    request: ModerationRequest,
  ): Promise<Prepared> {
    const model = this.#judgeOf(http, request.model ?? JUDGE);
    const texts = moderationTexts(request);
    const questions = texts.length * MODERATION_CATEGORIES.length;
    const tokens = texts.reduce((sum, text) => sum + Math.ceil(Buffer.byteLength(text) / 3), 0);
    const permitted = await this.#calls.permit(http, reply, {
      model,
      promptTokens: tokens * MODERATION_CATEGORIES.length + QUESTION_TOKENS * questions,
      outputTokens: questions,
      engineRequests: questions,
    });
    return { ...permitted, texts };
  }

  #judgeOf(http: CallerRequest, name: string): ModelRecord {
    const given = name === JUDGE ? this.#config.moderationJudge : name.slice(JUDGE.length + 1);
    if (given !== undefined) return this.#calls.resolve(http, given);
    const found = http.caller && this.#calls.parts.models.firstReadyChat(http.caller);
    if (found) return found;
    const message = `No model is ready to be the judge. Name one, as \`${JUDGE}:MODEL\`, or start the masters with --moderation-judge MODEL.`;
    throw new AppError("model_not_found", message, { param: "model" });
  }

  /** Keyed by text and category. */
  async #scores(http: CallerRequest, prepared: Prepared, signal: AbortSignal): Promise<number[][]> {
    const { texts, model } = prepared;
    const scores = texts.map(() => new Array<number>(MODERATION_CATEGORIES.length).fill(0));
    const replicas = Math.max(1, this.#calls.parts.models.readyReplicas(model));
    const limit = Math.min(MAX_QUESTIONS_AT_ONCE, replicas * QUESTIONS_PER_REPLICA);
    const ask = async (question: Question, either: AbortSignal) => {
      const row = scores[question.text] as number[];
      row[question.category] = await this.#ask(http, prepared, question, either);
    };
    // The first question of a text computes the prefix that the others reuse.
    await forEachLimit(questionsOf(texts.length, 0, 1), limit, ask, signal);
    const rest = questionsOf(texts.length, 1, MODERATION_CATEGORIES.length);
    await forEachLimit(rest, limit, ask, signal);
    return scores;
  }

  async #ask(
    http: CallerRequest,
    prepared: Prepared,
    { text, category }: Question,
    signal: AbortSignal,
  ): Promise<number> {
    const { texts, call, model } = prepared;
    const request = judgeRequest(texts[text] ?? "", MODERATION_CATEGORIES[category]!);
    const tally = call.part();
    try {
      const answer = await this.#calls.start(http, prepared, { request }, signal);
      let score: number | undefined;
      for await (const event of answer.events) {
        if (event.type === "delta" && event.logprobs?.[0]) score ??= judgeScore(event.logprobs[0]);
        // A question is neither a choice nor a token of an answer to its caller.
        if (event.type !== "delta" && event.type !== "finish") tally.observe(event);
        if (event.type !== "done") continue;
        if (score !== undefined) return score;
        const message = `${model.id} answers neither yes nor no, so it cannot be a judge. Name another model, as \`${JUDGE}:MODEL\`.`;
        throw new AppError("invalid_value", message, { param: "model", model: model.id });
      }
      throw cutShort(answer.node);
    } catch (thrown) {
      const failure = toAppError(thrown);
      const isText = failure.code === "context_length_exceeded";
      throw isText ? underParam(failure, texts.length > 1 ? `input[${text}]` : "input") : failure;
    }
  }
}

function* questionsOf(texts: number, from: number, to: number): Generator<Question, void> {
  for (let text = 0; text < texts; text++) {
    for (let category = from; category < to; category++) yield { text, category };
  }
}
