// The nightly job: counts the orders that are done.
import { openDatabase } from './database.js';

const db = openDatabase();
const { orders, sum } = db
  .prepare(
    "SELECT count(*) AS orders, coalesce(sum(price), 0) AS sum FROM orders WHERE status = 'done'",
  )
  .get();
db.prepare('INSERT INTO reports (at, orders, sum) VALUES (?, ?, ?)').run(
  new Date().toISOString(),
  orders,
  sum,
);
console.log(`${orders} orders, ${sum} in all`);
