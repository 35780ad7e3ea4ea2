import { grants } from "@heddle/auth/scopes";
import { AppError } from "@heddle/base/errors";
import { CALL_PRIORITIES, type CallPriority } from "@heddle/contracts/call-priority";
import type { CallerRequest } from "../http/access.ts";
import { callerText, requestCaller } from "../http/identity/caller.ts";

const HEADER = "x-heddle-priority";

/** The priorities of OpenAI's tiers. */
const TIERS = { default: "normal", flex: "batch", priority: "interactive" } as const;

export type ServiceTier = keyof typeof TIERS;

/** What the body says of the tier: `auto` leaves it to the header. */
type AskedTier = ServiceTier | "auto" | null | undefined;

/** The priority that a request asks for, in its body or its header. Throws if its caller may not raise it. */
export function priorityOfRequest(request: CallerRequest, tier: AskedTier): CallPriority {
  const isNamed = tier != null && tier !== "auto";
  const priority = isNamed ? TIERS[tier] : priorityOfHeader(request.headers[HEADER]);
  if (priority !== "interactive") return priority;
  const caller = requestCaller(request);
  if (!grants(caller.scopes, "inference:priority")) {
    const message = `${callerText(caller)} lacks the permission inference:priority, which the priority \`interactive\` needs.`;
    throw new AppError("permission_denied", message, { param: isNamed ? "service_tier" : HEADER });
  }
  return priority;
}

function priorityOfHeader(header: string | string[] | undefined): CallPriority {
  if (header === undefined) return "normal";
  const known = CALL_PRIORITIES.find((priority) => priority === header);
  if (known) return known;
  const message = `Invalid value for the header '${HEADER}': expected ${CALL_PRIORITIES.join(", ")}.`;
  throw new AppError("invalid_value", message, { param: HEADER });
}

/** The tier that an answer names. */
export function tierOf(priority: CallPriority): ServiceTier {
  if (priority === "normal") return "default";
  return priority === "batch" ? "flex" : "priority";
}
