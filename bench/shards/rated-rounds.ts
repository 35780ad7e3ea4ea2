import { median } from "../support/statistics.ts";

/** A model that is served, in one way of several. */
export interface RatedServer {
  readonly name: string;
  /** Tokens a second while as many answers of `steps` tokens are generated at once. */
  rate(sequences: number, steps: number): Promise<number>;
  close(): Promise<void>;
}

/** Statistics of one number in all rounds. */
export interface Spread {
  readonly median: number;
  readonly least: number;
  readonly most: number;
}

interface RoundPlan {
  readonly rounds: number;
  readonly sequences: readonly number[];
  /** Tokens of each answer, unless that makes fewer than `leastTokens` in a turn. */
  readonly steps: number;
  readonly leastTokens: number;
}

/**
 * The rates of servers in rounds. All are loaded; for each number of sequences one after the other has
 * its turn. So other load on the machine affects all that are compared.
 */
export class RatedRounds {
  /** By server and sequences, the rounds. */
  readonly rates = new Map<string, number[]>();

  /** The servers that were measured. */
  names: readonly string[] = [];

  /** Neighbours in the list have their turns next to each other; every other round goes backwards. */
  async measure(
    servers: readonly RatedServer[],
    { rounds, sequences: counts, steps, leastTokens }: RoundPlan,
  ): Promise<void> {
    this.names = servers.map(({ name }) => name);
    for (const server of servers) await server.rate(1, steps);
    for (let round = 0; round < rounds; round++) {
      for (const sequences of counts) {
        for (const server of round % 2 === 0 ? servers : servers.toReversed()) {
          const tokens = Math.max(steps, Math.ceil(leastTokens / sequences));
          this.#add(server.name, sequences, await server.rate(sequences, tokens));
        }
      }
    }
  }

  /** The median of the rounds. */
  of(name: string, sequences: number): number {
    return median(this.#rounds(name, sequences));
  }

  /** What is computed of two servers' rates in each round. */
  spread(
    [one, other]: readonly [string, string],
    sequences: number,
    compute: (rate: number, otherRate: number) => number,
  ): Spread {
    const others = this.#rounds(other, sequences);
    const values = this.#rounds(one, sequences).map((rate, i) => compute(rate, others[i] ?? 0));
    return { median: median(values), least: Math.min(...values), most: Math.max(...values) };
  }

  #rounds(name: string, sequences: number): readonly number[] {
    return this.rates.get(`${name}/${sequences}`) ?? [];
  }

  #add(name: string, sequences: number, rate: number): void {
    const key = `${name}/${sequences}`;
    this.rates.set(key, [...(this.rates.get(key) ?? []), rate]);
  }
}
