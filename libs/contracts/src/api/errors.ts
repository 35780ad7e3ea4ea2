import type { ErrorCode } from "@heddle/base/errors";
import { z } from "zod";

/** The error body of the inference API, which is OpenAI's with three further members. */
export const errorResponse = z
  .object({
    error: z
      .object({
        message: z.string(),
        type: z.string(),
        param: z.string().nullable(),
        code: z.string().nullable(),
        request_id: z.string(),
        retryable: z.boolean().describe("Whether the same request may succeed later."),
        node: z.string().optional().describe("The node that failed."),
        model: z.string().optional(),
      })
      .meta({ id: "Error" }),
  })
  .meta({ id: "ErrorResponse", description: "An error of the inference API." });
/** The error body of the orchestration API: problem details of RFC 9457. */
export const problem = z
  .object({
    type: z.string().describe("`urn:heddle:error:` and the code."),
    title: z.string(),
    status: z.int(),
    detail: z.string(),
    instance: z.string(),
    code: z.string(),
    errors: z
      .array(z.object({ pointer: z.string(), code: z.string(), detail: z.string() }))
      .describe("The faults of the request: a JSON pointer to the field, and the reason."),
    request_id: z.string(),
    retryable: z.boolean().describe("Whether the same request may succeed later."),
  })
  .meta({ id: "Problem", description: "An error of the orchestration API." });

/** What the exit codes of commands mean. */
export const EXIT_MEANINGS: Readonly<Record<number, string>> = {
  0: "Success.",
  1: "A failure.",
  2: "Wrong usage, or a request that is refused.",
  3: "Not found.",
  4: "The key or its permission.",
  5: "A conflict.",
  6: "A rate limit or quota.",
  7: "Unavailable.",
  8: "The job did not succeed, or can never run.",
  130: "Interrupted.",
};

/** What each code means to a caller, in one sentence. */
export const ERROR_MEANINGS: Readonly<Record<ErrorCode, string>> = {
  invalid_value: "A part of the request is not as expected; `param` names it.",
  missing_required_parameter: "A part that is needed is absent; `param` names it.",
  unsupported_parameter: "A parameter that this version does not support; leave it out.",
  invalid_json: "The body is not a JSON object.",
  context_length_exceeded: "Prompt and answer exceed the context; the message has the counts.",
  previous_response_not_found:
    "The response to continue, or one before it, does not exist; send its items as `input`.",
  invalid_api_key: "No key, or a mistyped, unknown, revoked or expired one.",
  permission_denied: "The key lacks the permission, or the model is not on its list.",
  not_found: "Nothing has that id, or there is no such route.",
  model_not_found: "No such model; `GET /api/v1/models` lists them.",
  method_not_allowed: "The route has other methods; the header `allow` lists them.",
  request_timeout: "The client sent or read too slowly.",
  conflict: "The present state forbids it: a name in use, a job that has ended.",
  gone: "It existed and is no longer kept.",
  precondition_failed: "A condition of the request, as `If-Match`, does not hold.",
  request_too_large: "The body is larger than allowed.",
  unsupported_media_type: "Send `content-type: application/json`.",
  unprocessable: "The body is well formed and cannot be carried out.",
  rate_limit_exceeded: "A limit of the key is reached; `retry-after` says when to try again.",
  insufficient_quota: "A quota is spent; waiting does not help.",
  cancelled: "The caller cancelled the request.",
  server_error: "A defect of the platform: report it with the request id.",
  engine_failed: "The model's engine failed; another replica may do better.",
  answer_failed: "The model's engine works, and failed this request, which may be why.",
  worker_lost: "The worker ended before the answer did.",
  overloaded: "Queues are full; `retry-after` says when to try again.",
  unavailable:
    "A part of the cluster, which the message names, is unreachable or fails repeatedly.",
  outcome_unknown:
    "The change may have been made: check, or repeat it with the same `Idempotency-Key`.",
  shard_unavailable:
    "A parameter server is unreachable or lost its state; the next attempt restores it.",
  member_removed: "This master was removed from its group and stops.",
  model_loading: "The model is being loaded.",
  model_failed: "The model cannot be loaded until its file is repaired.",
  insufficient_storage: "The replicated state has no space for it; remove what is not needed.",
  insufficient_memory:
    "The memory of this master is too small for the state; `/readyz` says what to do.",
  deadline_exceeded: "It was not done in time.",
};
