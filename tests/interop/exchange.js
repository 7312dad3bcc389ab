// Subscribes with mqtt.js, publishes, and prints the messages that came as JSON; its settings come on standard input. Run by test_mqttjs.py.
const mqtt = require("mqtt");

const settings = JSON.parse(require("fs").readFileSync(0));
const client = mqtt.connect(settings.url, { protocolVersion: settings.version, reconnectPeriod: 0 });
const messages = [];

client.on("error", (error) => {
  console.error(error);
  process.exit(1);
});

client.on("message", (topic, payload, packet) => {
  messages.push({ topic, payload: payload.toString(), qos: packet.qos, retain: packet.retain });
  if (messages.length === settings.expect) {
    client.end(false, {}, () => console.log(JSON.stringify(messages)));
  }
});

client.on("connect", () => {
  client.subscribe(settings.topic, { qos: settings.qos }, (error) => {
    if (error) throw error;
    for (const payload of settings.publish) {
      client.publish(settings.topic, payload, { qos: settings.qos });
    }
  });
});
