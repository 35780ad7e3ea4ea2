import type { Backend, CompiledProgram, Tensors } from "@heddle/training/backend";
import { type Executable, fedInputs } from "@heddle/training/executable";
import type { Value } from "@heddle/training/ir/value";
import { inOrder } from "@heddle/training/reference/interpreter";
import type { Tensor } from "@tensorflow/tfjs-core";
import { checkedFeed } from "./checked-feed.ts";
import { loadTensorFlow, type TensorFlow } from "./load-tensorflow.ts";
import { evaluateOp } from "./tfjs-ops.ts";

export interface TfjsOptions {
  /**
   * `cpu`, or `cuda` and the device's index. There is no fallback: an unavailable device is an
   * error.
   */
  readonly device: "cpu" | `cuda:${number}`;
}

/**
 * TensorFlow.js, operation by operation. On `cuda` it needs `@tensorflow/tfjs-node-gpu`. On `cpu`
 * it uses `@tensorflow/tfjs-node` where it is installed, else the slow JavaScript kernels.
 */
export async function tfjsBackend({ device }: TfjsOptions): Promise<Backend> {
  const { tf, runtime } = await loadTensorFlow(device);
  return {
    name: "tfjs",
    device: `${device} (${runtime})`,
    compile: (executable) => Promise.resolve(new TfjsProgram(tf, executable)),
  };
}

class TfjsProgram implements CompiledProgram {
  readonly #tf: TensorFlow;
  readonly #executable: Executable;
  /** The values that the outputs need, inputs before their users. */
  readonly #order: readonly Value[];
  /** Tensors of the program's constants, kept from run to run. */
  readonly #constants: ReadonlyMap<number, Tensor>;

  constructor(tf: TensorFlow, executable: Executable) {
    this.#tf = tf;
    this.#executable = executable;
    this.#order = inOrder(executable.outputs.map(({ value }) => value));
    this.#constants = new Map(
      this.#order.flatMap(({ id, op, shape }) =>
        op.kind === "constant"
          ? [[id, tf.tensor(Float32Array.from(op.data), [...shape])] as const]
          : [],
      ),
    );
  }

  async run(feeds: Tensors): Promise<Record<string, Float32Array>> {
    const results = this.#tf.tidy(() => this.#evaluate(this.#fed(feeds)));
    const data = await Promise.all(
      Object.entries(results).map(async ([name, tensor]) => {
        const values = Float32Array.from(await tensor.data());
        tensor.dispose();
        return [name, values] as const;
      }),
    );
    return Object.fromEntries(data);
  }

  close(): Promise<void> {
    for (const tensor of this.#constants.values()) tensor.dispose();
    return Promise.resolve();
  }

  #fed(feeds: Tensors): Record<string, Tensor> {
    const inputs = fedInputs(this.#executable).map(({ name, shape, type }) => {
      const data = checkedFeed(name, shape, type, feeds[name]);
      return [name, this.#tf.tensor(data, [...shape], type === "f32" ? "float32" : "int32")];
    });
    return Object.fromEntries(inputs) as Record<string, Tensor>;
  }

  #evaluate(inputs: Record<string, Tensor>): Record<string, Tensor> {
    const { loop, outputs } = this.#executable;
    if (!loop) return this.#once(inputs);
    const current = { ...inputs };
    const turns: Record<string, Tensor>[] = [];
    for (let turn = 0; turn < loop.steps; turn++) {
      for (const name of loop.stacked) {
        const [page] = this.#tf.split(inputs[name] as Tensor, loop.steps).slice(turn, turn + 1);
        current[name] = this.#tf.squeeze(page as Tensor, [0]);
      }
      const results = this.#once(current);
      for (const [input, output] of loop.carried) current[input] = results[output] as Tensor;
      turns.push(results);
    }
    const carried = new Set(loop.carried.values());
    const gathered = outputs.map(({ name }) => {
      const each = turns.map((turn) => turn[name] as Tensor);
      return [name, carried.has(name) ? (each.at(-1) as Tensor) : this.#tf.stack(each)] as const;
    });
    return Object.fromEntries(gathered);
  }

  /** Two outputs may be one value: each is a separate tensor, so that each is disposed of once. */
  #once(inputs: Readonly<Record<string, Tensor>>): Record<string, Tensor> {
    const known = new Map<number, Tensor>(this.#constants);
    for (const value of this.#order) {
      if (value.op.kind === "constant") continue;
      if (value.op.kind === "input") known.set(value.id, inputs[value.op.name] as Tensor);
      else known.set(value.id, evaluateOp(this.#tf, value, operandsOf(value, known)));
    }
    const { outputs } = this.#executable;
    return Object.fromEntries(
      outputs.map(({ name, value }) => [name, (known.get(value.id) as Tensor).clone()]),
    );
  }
}

function operandsOf({ inputs, op }: Value, known: ReadonlyMap<number, Tensor>): Tensor[] {
  return inputs.map(({ id }) => {
    const tensor = known.get(id);
    if (tensor) return tensor;
    throw new Error(`${op.kind} comes before its operand ${id}`);
  });
}
