import type { ParameterClient, Parameters, PushTerms } from "../parameter-client.ts";

/** How a worker exchanges the fragments of a model, one by one, while it computes. */
export interface FragmentExchange {
  /**
   * What the servers had when each fragment was exchanged last. The numbers of one whose exchange is
   * under way mean nothing.
   */
  readonly shared: Parameters;
  /** Where a fragment's part is put before its exchange begins; it must stay until that has ended. */
  readonly part: Parameters;
  /** Fills `shared` with all fragments. */
  pullAll(): Promise<void>;
  /** Begins to push a fragment's part of a round, and to pull what becomes of it. */
  begin(fragment: number, round: number, terms: PushTerms): void;
  /** Resolves when the fragment's exchange has ended, at once where none is under way. */
  finish(fragment: number): Promise<void>;
  /** Resolves when no exchange is under way; each is still to be finished. */
  settle(): Promise<void>;
}

/** The whole model as its one fragment. */
export function wholeModelExchange(client: ParameterClient, model: Parameters): FragmentExchange {
  const zeros = () =>
    Object.fromEntries(
      Object.entries(model).map(([name, { length }]) => [name, new Float32Array(length)]),
    );
  const [shared, part] = [zeros(), zeros()];
  let underWay: Promise<unknown> = Promise.resolve();
  const settle = async () => void (await underWay);
  return {
    ...{ shared, part, settle, finish: settle },
    pullAll: async () => void (await client.pull(shared)),
    begin: (_fragment, _round, terms) => {
      underWay = client.push(part, terms).then(() => client.pull(shared));
      // Whoever finishes it is told.
      underWay.catch(() => undefined);
    },
  };
}
