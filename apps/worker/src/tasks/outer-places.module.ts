import type { DynamicModule } from "@nestjs/common";
import { OuterPlaces } from "./outer-places.ts";

class OuterPlacesModule {}

/** Where the worker's tasks run in place of its own machine. */
export function outerPlacesModule(places: OuterPlaces): DynamicModule {
  return {
    module: OuterPlacesModule,
    global: true,
    providers: [{ provide: OuterPlaces, useValue: places }],
    exports: [OuterPlaces],
  };
}
