import { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import type { DynamicModule } from "@nestjs/common";
import { OuterPlaces } from "./outer-places.ts";

class OuterPlacesModule {}

/** The worker's plugins, and where its tasks run in place of its own machine. */
export function outerPlacesModule(places: OuterPlaces, plugins: PluginSet): DynamicModule {
  return {
    module: OuterPlacesModule,
    global: true,
    providers: [
      { provide: OuterPlaces, useValue: places },
      { provide: PluginSet, useValue: plugins },
    ],
    exports: [OuterPlaces, PluginSet],
  };
}
