#!/usr/bin/env node
// npm run sim: seeded runs of the simulator. `-- --seeds 1000` from `--from 1`; `-- --seed 7 --trace` shows one; `--plant "double claim"`.
import { handOver } from './lib/hand-over.mjs';

await handOver('sim.ts');
