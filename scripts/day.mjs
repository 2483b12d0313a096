#!/usr/bin/env node
// npm run day: sets up what is missing, then runs day.ts with Node 24.
// `-- --projects 10 --deployments 60 --gigabytes 0.5` is a short day.
import { handOver } from './lib/hand-over.mjs';

await handOver('day.ts');
