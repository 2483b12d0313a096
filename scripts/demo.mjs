#!/usr/bin/env node
// npm run demo: sets up what is missing, then runs demo.ts with Node 24.
import { handOver } from './lib/hand-over.mjs';

await handOver('demo.ts');
