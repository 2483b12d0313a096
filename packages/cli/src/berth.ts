/** The command line without the launcher of the repository, for machines that have only the bundle and Node.js (docs/ci.md). */
import { main } from './main.ts';

await main(process.argv.slice(2));
