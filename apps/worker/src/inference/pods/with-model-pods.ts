import type { EnginePorts } from "../engine-ports.ts";
import type { ModelPods } from "./model-pods.ts";

/**
 * The ports, with a Pod for each engine that they start. A stage of a divided model stays in the
 * worker, whose streams to the other stages it needs.
 */
export function withModelPods(ports: EnginePorts, pods: ModelPods): EnginePorts {
  return {
    ...ports,
    startEngine: (start) => {
      const { spec } = start;
      if (spec.engine !== "llama" || spec.stage) return ports.startEngine(start);
      const { device = "cpu" } = spec.options;
      const devices = device === "cpu" ? 0 : device.split(",").length;
      const options = { ...spec.options, device: deviceInside(devices) };
      const launchWith = (weights: readonly string[]) =>
        pods.launcher({ deployment: spec.key, devices, weights });
      return ports.startEngine({ ...start, spec: { ...spec, options }, launchWith });
    },
  };
}

/** A Pod sees its own devices alone, which are numbered from 0. */
function deviceInside(devices: number): string {
  return devices === 0 ? "cpu" : Array.from({ length: devices }, (_, index) => index).join(",");
}
