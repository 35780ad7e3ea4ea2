import type { UpstreamAccess } from "@heddle/engines/upstream/start-upstream";
import type { EnginePorts } from "./engine-ports.ts";

/** The ports, with the engine `openai` beside those that they start. */
export function withUpstreams(ports: EnginePorts, access: UpstreamAccess): EnginePorts {
  return {
    ...ports,
    startEngine: async ({ spec, ...start }) => {
      if (spec.engine !== "openai") return ports.startEngine({ ...start, spec });
      // Loaded only now: its HTTP client takes a part of a worker's start, and most need none.
      const { startUpstream } = await import("@heddle/engines/upstream/start-upstream");
      return startUpstream({ ...start, spec, access });
    },
  };
}
