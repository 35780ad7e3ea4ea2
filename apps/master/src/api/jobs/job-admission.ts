import { AppError, toAppError } from "@heddle/base/errors";
import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import type { HostedPlugin } from "@heddle/plugin-kit/host/hosted-plugin";
import { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import type { AdmissionAnswer } from "@heddle/plugin-kit/points/jobs";
import { Inject } from "@nestjs/common";
import type { Caller } from "../../http/identity/caller.ts";

/** The longest review of a job by one rule. */
const REVIEW_MS = 2_000;

type Body = Record<string, unknown>;

/** A job's body on its way to being accepted. */
export interface Submitted {
  readonly body: Body;
  readonly caller: Caller;
  readonly isDryRun: boolean;
  /** The job of a body; throws what is wrong with it. */
  readonly read: (body: Body) => SubmitJob;
}

interface Rule {
  readonly plugin: HostedPlugin;
  readonly name: string;
  readonly onFailure: "refuse" | "admit";
}

/** Has the rules of plugins review jobs before they are accepted. */
export class JobAdmission {
  readonly #plugins: PluginSet;

  constructor(@Inject(PluginSet) plugins: PluginSet) {
    this.#plugins = plugins;
  }

  /** The body, as the rules have changed it. Rejects with a rule's refusal. */
  async review(submitted: Submitted): Promise<Body> {
    let { body } = submitted;
    for (const rule of this.#rules()) body = await reviewed(rule, body, submitted);
    return body;
  }

  #rules(): Rule[] {
    return this.#plugins.usable.flatMap((plugin) =>
      (plugin.description?.admission ?? []).map((rule) => ({ plugin, ...rule })),
    );
  }
}

async function reviewed(rule: Rule, body: Body, submitted: Submitted): Promise<Body> {
  const { caller, isDryRun, read } = submitted;
  const { id, name, project } = caller;
  const job = read(body);
  const answer = await answerOf(rule, {
    point: "admission",
    name: rule.name,
    job,
    submission: { caller: { id, name, project }, isDryRun },
  });
  if (answer === undefined) return body;
  if ("refuse" in answer) {
    const message = `The rule ${textOf(rule)} refuses the job: ${answer.refuse}`;
    throw new AppError("unprocessable", message, { param: answer.param });
  }
  const changed = { ...body, ...answer.change };
  const fault = faultOf(changed, body, read);
  if (fault === undefined) return changed;
  rule.plugin.blame(`${rule.name}: ${fault}`);
  if (rule.onFailure === "admit") return body;
  // The caller can do nothing about it.
  throw failed(rule, fault);
}

/** Why the rule's job cannot be used. */
function faultOf(changed: Body, body: Body, read: Submitted["read"]): string | undefined {
  if (changed["id"] !== body["id"]) return "it changes the job's `id`";
  try {
    read(changed);
    return undefined;
  } catch (error) {
    return `it changes the job to one that is not valid: ${toAppError(error).message}`;
  }
}

async function answerOf(
  rule: Rule,
  call: Parameters<HostedPlugin["call"]>[0],
): Promise<AdmissionAnswer> {
  try {
    return (await rule.plugin.call(call, { timeoutMs: REVIEW_MS })) as AdmissionAnswer;
  } catch (cause) {
    if (rule.onFailure === "admit") return undefined;
    throw failed(rule, toAppError(cause).message, cause);
  }
}

function failed({ plugin, name }: Rule, why: string, cause?: unknown): AppError {
  const message = `The rule ${name} of the plugin ${plugin.name}, which reviews all jobs, failed: ${why}`;
  return new AppError("unavailable", message, { retryAfterMs: 1_000, cause });
}

function textOf({ plugin, name }: Rule): string {
  return `${name} of the plugin ${plugin.name}`;
}
