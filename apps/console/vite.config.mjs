// `npx vite apps/console` serves the sources, with the API of the master at HEDDLE_ENDPOINT.
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

const ENDPOINT = process.env.HEDDLE_ENDPOINT ?? "http://127.0.0.1:8080";

export default {
  root: dirname(fileURLToPath(import.meta.url)),
  base: "/console/",
  build: {
    target: "es2023",
    // No inline data: the content security policy allows files of the console alone.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: {
      // Libraries mark modules for servers that render, of which there are none here.
      onLog: (level, log, print) => log.code !== "MODULE_LEVEL_DIRECTIVE" && print(level, log),
    },
  },
  server: { proxy: { "/api": ENDPOINT, "/health": ENDPOINT } },
};
