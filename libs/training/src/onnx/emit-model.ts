import {
  type Executable,
  fedInputs,
  givenOutputs,
  type Loop,
  type NamedOutput,
} from "../executable.ts";
import { type Emitted, emitGraph } from "./emit-graph.ts";
import {
  graphMessage,
  modelBytes,
  ONNX_BOOL,
  ONNX_INT64,
  type OnnxNode,
  type OnnxValue,
  onnxType,
  tensorMessage,
} from "./onnx-messages.ts";

/** The executable as the bytes of an ONNX model of standard operators (opset 18). */
export function emitModel(executable: Executable): Uint8Array<ArrayBuffer> {
  const { loop } = executable;
  return modelBytes(loop ? loopGraph(executable, loop) : plainGraph(executable));
}

function plainGraph(executable: Executable) {
  const emitted = emitGraph(valuesOf(executable), "", (name) => name);
  return graphMessage({
    name: "program",
    nodes: [...emitted.nodes, ...outputNodes(executable, emitted, (name) => name)],
    initializers: emitted.initializers,
    inputs: fedInputs(executable).map(onnxValue),
    outputs: givenOutputs(executable).map(onnxValue),
  });
}

/**
 * One ONNX Loop. Carried values pass through the Loop's own inputs. Its body refers to everything
 * else in the outer graph by name, and takes its slice of a stack by the turn's number.
 */
function loopGraph(executable: Executable, loop: Loop) {
  const trips = { name: "loop.steps", type: ONNX_INT64, shape: [] };
  const proceed = { name: "loop.proceed", type: ONNX_BOOL, shape: [] };
  return graphMessage({
    name: "program",
    nodes: [
      {
        type: "Loop",
        inputs: [trips.name, proceed.name, ...loop.carried.keys()],
        outputs: inLoopOrder(executable, loop).map(({ name }) => name),
        attributes: { body: { graph: loopBody(executable, loop) } },
      },
    ],
    initializers: [
      tensorMessage(trips, new Uint8Array(BigInt64Array.of(BigInt(loop.steps)).buffer)),
      tensorMessage(proceed, Uint8Array.of(1)),
    ],
    inputs: fedInputs(executable).map(onnxValue),
    outputs: givenOutputs(executable).map(onnxValue),
  });
}

/** Names in a body must differ from those of the outer graph. */
const inBody = (name: string): string => `turn.${name}`;

function loopBody(executable: Executable, loop: Loop) {
  const own = (name: string) => loop.carried.has(name) || loop.stacked.has(name);
  const emitted = emitGraph(valuesOf(executable), inBody(""), (name) =>
    own(name) ? inBody(name) : name,
  );
  const turn = { name: "turn.number", type: ONNX_INT64, shape: [] };
  const proceed = { name: "turn.proceed", type: ONNX_BOOL, shape: [] };
  const goOn = { ...proceed, name: "turn.go_on" };
  const slices = [...loop.stacked].map((name) => ({
    type: "Gather",
    inputs: [name, turn.name],
    outputs: [inBody(name)],
    attributes: { axis: 0 },
  }));
  const carried = [...loop.carried.keys()].map((name) =>
    executable.inputs.find((input) => input.name === name),
  );
  return graphMessage({
    name: "turn",
    nodes: [
      { type: "Identity", inputs: [proceed.name], outputs: [goOn.name] },
      ...slices,
      ...emitted.nodes,
      ...outputNodes(executable, emitted, inBody),
    ],
    initializers: emitted.initializers,
    inputs: [
      turn,
      proceed,
      ...carried.map((spec) => onnxValue({ ...known(spec), name: inBody(known(spec).name) })),
    ],
    outputs: [
      goOn,
      ...inLoopOrder(executable, loop).map(({ name, value }) =>
        onnxValue({ ...value, name: inBody(name) }),
      ),
    ],
  });
}

/** The order of a Loop's outputs: carried ones in the order of the inputs, then stacked ones. */
function inLoopOrder(executable: Executable, loop: Loop): NamedOutput[] {
  const byName = new Map(executable.outputs.map((output) => [output.name, output]));
  const carried = [...loop.carried.values()];
  return [
    ...carried.map((name) => known(byName.get(name))),
    ...executable.outputs.filter(({ name }) => !carried.includes(name)),
  ];
}

function known<T>(part: T | undefined): T {
  if (part === undefined)
    throw new Error("a loop carries a value that is neither an input nor an output");
  return part;
}

/** Gives each output its own name, also where two outputs are one value or an input. */
function outputNodes(
  executable: Executable,
  emitted: Emitted,
  rename: (name: string) => string,
): OnnxNode[] {
  return executable.outputs.map(({ name, value }) => ({
    type: "Identity",
    inputs: [emitted.nameOf(value)],
    outputs: [rename(name)],
  }));
}

function valuesOf({ outputs }: Executable) {
  return outputs.map(({ value }) => value);
}

function onnxValue(spec: {
  name: string;
  type: "f32" | "i32";
  shape: readonly number[];
}): OnnxValue {
  return { name: spec.name, type: onnxType(spec.type), shape: spec.shape };
}
