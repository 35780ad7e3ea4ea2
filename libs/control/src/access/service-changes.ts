import { SERVICE_NAME } from "@heddle/contracts/roles";
import { ACCEPTED, type ControlReply, refuse } from "../command.ts";
import type { ApiKeyRecord, ControlState } from "../state.ts";
import { bindingKey, type ServiceCommand } from "./records.ts";

const MAX_SERVICES = 10_000;
const MAX_DESCRIPTION = 200;

type ServiceState = Pick<ControlState, "services" | "bindings" | "keys">;
type CommandOf<T> = Extract<ServiceCommand, { readonly type: T }>;

const TYPES: ReadonlySet<string> = new Set<ServiceCommand["type"]>([
  "service.set",
  "service.remove",
]);

export function isServiceCommand(command: { readonly type: string }): command is ServiceCommand {
  return TYPES.has(command.type);
}

/** The only code that changes service accounts. */
export function changeService(state: ServiceState, command: ServiceCommand): ControlReply {
  return command.type === "service.set"
    ? setService(state, command)
    : removeService(state, command.name);
}

/** Whether the key belongs to a service account that is disabled. */
export function isOfDisabledService(
  { services }: Pick<ControlState, "services">,
  { service }: Pick<ApiKeyRecord, "service">,
): boolean {
  return service !== undefined && services.get(service)?.disabledAtMs !== undefined;
}

function setService(
  { services }: ServiceState,
  { name, description, isDisabled, atMs }: CommandOf<"service.set">,
): ControlReply {
  if (!SERVICE_NAME.test(name)) {
    return refuse("invalid_value", "a service account has 1 to 63 of a-z, 0-9, `.`, `_` and `-`");
  }
  if (description !== undefined && description.length > MAX_DESCRIPTION) {
    const message = `a description has at most ${MAX_DESCRIPTION} characters`;
    return refuse("invalid_value", message);
  }
  const known = services.get(name);
  if (!known && services.size >= MAX_SERVICES) {
    return refuse("conflict", `the cluster has ${MAX_SERVICES} service accounts`);
  }
  const wasDisabled = known?.disabledAtMs !== undefined;
  services.set(name, {
    description: description ?? known?.description ?? "",
    createdAtMs: known?.createdAtMs ?? atMs,
    updatedAtMs: atMs,
    ...((isDisabled ?? wasDisabled) && { disabledAtMs: known?.disabledAtMs ?? atMs }),
  });
  return ACCEPTED;
}

/** Its roles go with it, so that no later account of the name has them. */
function removeService({ services, bindings, keys }: ServiceState, name: string): ControlReply {
  if (!services.has(name)) {
    return refuse("not_found", `no service account has the name ${name}`);
  }
  for (const { id, service, revokedAtMs } of keys.values()) {
    if (service === name && revokedAtMs === undefined) {
      return refuse("conflict", `the key ${id} belongs to ${name}: revoke it first`);
    }
  }
  bindings.delete(bindingKey("service", name));
  services.delete(name);
  return ACCEPTED;
}
