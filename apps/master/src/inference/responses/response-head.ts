import type { ResponseRequest } from "@heddle/contracts/api/responses/request";
import type { ModelRecord } from "@heddle/control/state";
import type { ServiceTier } from "../call-priority.ts";
import { fingerprintOf } from "../inference-calls.ts";
import { type ResponseHead, secondsNow } from "./response-builder.ts";

/** What a response repeats of its request, with the defaults that were used. */
export function headOf(
  id: string,
  request: ResponseRequest,
  model: ModelRecord,
  tier: ServiceTier,
): ResponseHead {
  const { tools, conversation, user, reasoning } = request;
  return {
    id,
    object: "response",
    created_at: secondsNow(),
    background: request.background === true,
    instructions: request.instructions ?? null,
    max_output_tokens: request.max_output_tokens ?? null,
    max_tool_calls: request.max_tool_calls ?? null,
    metadata: request.metadata ?? {},
    model: model.id,
    parallel_tool_calls: request.parallel_tool_calls !== false,
    previous_response_id: request.previous_response_id ?? null,
    conversation: typeof conversation === "string" ? { id: conversation } : (conversation ?? null),
    prompt_cache_key: request.prompt_cache_key ?? null,
    reasoning: { effort: reasoning?.effort ?? null, summary: reasoning?.summary ?? null },
    safety_identifier: request.safety_identifier ?? null,
    service_tier: tier,
    store: request.store !== false,
    system_fingerprint: fingerprintOf(model),
    temperature: request.temperature ?? 1,
    text: { format: formatOf(request.text), verbosity: "medium" },
    tool_choice: request.tool_choice ?? "auto",
    tools: (tools ?? []).map(({ type, name, description, parameters, strict }) => ({
      type,
      name,
      description: description ?? null,
      parameters: parameters ?? null,
      strict: strict !== false,
    })),
    top_logprobs: request.top_logprobs ?? 0,
    top_p: request.top_p ?? 1,
    truncation: request.truncation ?? "disabled",
    ...(user == null ? {} : { user }),
  };
}

function formatOf(text: ResponseRequest["text"]): ResponseHead["text"]["format"] {
  const format = text?.format ?? { type: "text" };
  if (format.type !== "json_schema") return format;
  const { type, name, description, schema, strict } = format;
  return {
    type,
    name,
    ...(description == null ? {} : { description }),
    schema,
    strict: strict === true,
  };
}
