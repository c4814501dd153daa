// An Express service that limits its clients by asking a Headgate service: every
// client address may make 5 requests in 30 seconds, and search once a minute.
//
//   examples/express/run
//   curl -i http://127.0.0.1:8084/items/7
import express from 'express';
import { limit } from 'headgate';

const app = express();
app.use(limit({
  url: process.env.HEADGATE ?? 'redis://127.0.0.1:6380',
  timeout: Number(process.env.TIMEOUT ?? 1000),
  onFailure: (err) => console.error(err.message),
}));
app.get('/items/:id', (req, res) => res.send(`item ${req.params.id}\n`));
app.get('/search', (req, res) => res.send('found nothing\n'));

const server = app.listen(Number(process.env.PORT ?? 8084), '127.0.0.1', () => {
  console.log(`listening at http://127.0.0.1:${server.address().port}`);
});
