import { startUpstream, type UpstreamAccess } from "@heddle/engines/upstream/start-upstream";
import type { EnginePorts } from "./engine-ports.ts";

/** The ports, with the engine `openai` beside those that they start. */
export function withUpstreams(ports: EnginePorts, access: UpstreamAccess): EnginePorts {
  return {
    ...ports,
    startEngine: ({ spec, ...start }) =>
      spec.engine === "openai"
        ? startUpstream({ ...start, spec, access })
        : ports.startEngine({ ...start, spec }),
  };
}
