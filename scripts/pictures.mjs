#!/usr/bin/env node
// npm run pictures: sets up what is missing, then runs pictures.ts with Node 24.
import { handOver } from './lib/hand-over.mjs';

await handOver('pictures.ts');
