import { conformanceCases, conformanceError } from "@heddle/backends/conformance";
import { onnxBackend } from "@heddle/backends/onnx-backend";

/** The greatest relative error of a step in 32-bit numbers. */
const MOST_ERROR = 1e-3;

/** One step of each training program on ONNX Runtime, against the reference in 64-bit numbers. */
export async function checkTraining(device: "cpu" | `cuda:${string}`) {
  const backend = onnxBackend({ device: device as "cpu" | `cuda:${number}`, threads: 2 });
  const programs = [];
  for (const each of conformanceCases()) {
    const beganMs = performance.now();
    const error = await conformanceError(backend, each, 1);
    if (!(error <= MOST_ERROR)) {
      throw new Error(
        `${each.name} on ${device} differs by ${error}, at most ${MOST_ERROR} is right`,
      );
    }
    const ms = Math.round(performance.now() - beganMs);
    programs.push({ name: each.name, relative_error: error, ms });
  }
  return { device, programs };
}
