import type { ParameterClient, Parameters, PushTerms } from "../parameter-client.ts";

/** Exchanges the fragments of a model separately during computation. */
export interface FragmentExchange {
  /**
   * The servers' values at each fragment's last exchange. Those of a fragment whose exchange is in
   * progress are undefined.
   */
  readonly shared: Parameters;
  /**
   * A fragment's part is written here before its exchange begins, and must not change until it has
   * ended.
   */
  readonly part: Parameters;
  /** Fills `shared` with all fragments. */
  pullAll(): Promise<void>;
  /** Begins to push a fragment's part of a round, and to pull the result. */
  begin(fragment: number, round: number, terms: PushTerms): void;
  /** Resolves when the fragment's exchange has ended; at once where none is in progress. */
  finish(fragment: number): Promise<void>;
  /** Resolves when no exchange is in progress; each must still be finished. */
  settle(): Promise<void>;
}

/** The whole model as its only fragment. */
export function wholeModelExchange(client: ParameterClient, model: Parameters): FragmentExchange {
  const zeros = () =>
    Object.fromEntries(
      Object.entries(model).map(([name, { length }]) => [name, new Float32Array(length)]),
    );
  const [shared, part] = [zeros(), zeros()];
  let underWay: Promise<unknown> = Promise.resolve();
  const settle = async () => void (await underWay);
  return {
    shared,
    part,
    settle,
    finish: settle,
    pullAll: async () => void (await client.pull(shared)),
    begin: (_fragment, _round, terms) => {
      underWay = client.push(part, terms).then(() => client.pull(shared));
      // `finish` reports the error.
      underWay.catch(() => undefined);
    },
  };
}
