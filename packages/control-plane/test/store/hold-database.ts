/**
 * A control plane with nothing but its database: opens the file of its argument, writes, reports
 * it, and runs until it is killed.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { openStores } from '../../src/store/open.ts';

const quiet = { info: () => {}, warn: () => {} };
const stores = await openStores({ databaseUrl: `sqlite:${process.argv[2]}`, log: quiet });
for (let written = 0; ; await sleep(1)) {
  await stores.meta.setOnce(`key ${written}`, 'x');
  process.stdout.write(`${++written}\n`);
}
