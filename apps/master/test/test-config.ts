import { type FixedTimes, type MasterConfig, readConfig } from "../src/config/config.ts";

/** Settings of a master that differ from the flags' defaults. */
export type TestSettings = Partial<Omit<MasterConfig, "fixedTimes">> & {
  readonly fixedTimes?: Partial<FixedTimes>;
};

/** A master's settings in that data directory, with the flags' defaults and free ports. */
export function testConfig(dataDirectory: string, settings: TestSettings = {}): MasterConfig {
  const flags = ["--data", dataDirectory, "--name", "master-test"];
  const config = readConfig([...flags, "--http-port", "0", "--grpc-port", "0"], {});
  const fixedTimes = { ...config.fixedTimes, ...settings.fixedTimes };
  return { ...config, drainMs: 0, ...settings, fixedTimes };
}
