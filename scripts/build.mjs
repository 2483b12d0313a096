#!/usr/bin/env node
// npm run build: sets up what is missing, then runs build.ts with Node 24.
import { handOver } from './lib/hand-over.mjs';

await handOver('build.ts');
