#!/usr/bin/env node
// npm run test:api: runs schemathesis against a running control plane, as admin and as viewer.
// `-- --examples 20 --seed 1 --role admin`.
import { handOver } from './lib/hand-over.mjs';

await handOver('api.ts');
