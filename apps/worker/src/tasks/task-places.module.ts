import type { DynamicModule } from "@nestjs/common";
import { TaskPlaces } from "./task-places.ts";

class TaskPlacesModule {}

/** Where the worker's tasks run in place of its own machine. */
export function taskPlacesModule(places: TaskPlaces): DynamicModule {
  return {
    module: TaskPlacesModule,
    global: true,
    providers: [{ provide: TaskPlaces, useValue: places }],
    exports: [TaskPlaces],
  };
}
