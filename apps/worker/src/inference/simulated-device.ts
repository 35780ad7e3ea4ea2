import { deviceLabel } from "@heddle/contracts/gpu-devices";
import type { EnginePorts, WorkerEngine } from "./engine-ports.ts";

/** A GPU as the node reports it. */
interface Device {
  readonly index?: number;
  readonly name?: string;
  readonly simulated?: boolean;
}

/**
 * The ports of a node with simulated GPUs: an engine on one of those runs on the CPU and reports
 * that. So placement and eviction can be tested without a GPU.
 */
export function withSimulatedGpus(ports: EnginePorts, gpus: () => readonly Device[]): EnginePorts {
  return {
    ...ports,
    startEngine: async (start) => {
      const { spec } = start;
      const indexes = (spec.options.device ?? "").split(",");
      const asked = gpus().filter(({ index }) => indexes.includes(String(index)));
      const isSimulated = asked.length > 0 && asked.every(({ simulated }) => simulated);
      if (!isSimulated) return ports.startEngine(start);
      const options = { ...spec.options, device: "cpu" };
      const engine = await ports.startEngine({ ...start, spec: { ...spec, options } });
      const label = deviceLabel(indexes, `${asked[0]?.name} (simulated, on the CPU)`);
      return relabelled(engine, label);
    },
  };
}

function relabelled(engine: WorkerEngine, device: string): WorkerEngine {
  return {
    stage: engine.stage,
    moveStages: () => engine.moveStages?.(),
    info: { ...engine.info, device },
    submit: (id, request, options) => engine.submit(id, request, options),
    cancel: (id) => engine.cancel(id),
    load: () => engine.load(),
    close: () => engine.close(),
  };
}
