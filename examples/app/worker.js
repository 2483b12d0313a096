// The process `worker`: prices the orders that wait, one at a time. On SIGTERM it finishes its order.
import { setTimeout as sleep } from 'node:timers/promises';
import { openDatabase } from './database.js';

const db = openDatabase();
const take = db.prepare(
  `UPDATE orders SET status = 'working'
   WHERE id = (SELECT id FROM orders WHERE status <> 'done' ORDER BY id LIMIT 1) RETURNING *`,
);
const finish = db.prepare("UPDATE orders SET status = 'done', price = ? WHERE id = ?");

let isEnding = false;
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => void (isEnding = true));

console.log('waiting for orders');
while (!isEnding) {
  const order = take.get();
  if (order === undefined) await sleep(200);
  else {
    finish.run(order.amount * (10 + order.item.length), order.id);
    console.log(`order ${order.id}: ${order.amount} ${order.item}`);
  }
}
console.log('ends');
