#!/usr/bin/env node
// npm run sim: seeded runs of the simulator. `-- --seeds 1000 --from 1`; `-- --seed 7 --trace`
// prints one run; `-- --plant "double claim"`.
import { handOver } from './lib/hand-over.mjs';

await handOver('sim.ts');
